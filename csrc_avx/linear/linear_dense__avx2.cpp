// The float linear ops at avx2; bodies in linear_dense.inl.h.
#include "linear/linear_dense.inl.h"
