// The float linear ops at avx512; bodies in linear_dense.inl.h.
#include "linear/linear_dense.inl.h"
