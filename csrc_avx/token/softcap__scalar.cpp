// softcap at scalar; body in softcap.inl.h.
#include "token/softcap.inl.h"
