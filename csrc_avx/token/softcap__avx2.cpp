// softcap at avx2; body in softcap.inl.h.
#include "token/softcap.inl.h"
