// norm at avx512; body in norm.inl.h.
#include "norm/norm.inl.h"
