// softcap at neon; body in softcap.inl.h.
#include "token/softcap.inl.h"
