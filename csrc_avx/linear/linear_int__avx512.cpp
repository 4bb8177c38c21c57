// The integer linear ops at avx512; bodies in linear_int.inl.h.
#include "linear/linear_int.inl.h"
