// pack at avx2; body in pack.inl.h.
#include "ref/pack.inl.h"
