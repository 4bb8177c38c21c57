// norm at avx2; body in norm.inl.h.
#include "norm/norm.inl.h"
