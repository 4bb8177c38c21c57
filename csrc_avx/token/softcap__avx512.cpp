// softcap at avx512; body in softcap.inl.h.
#include "token/softcap.inl.h"
