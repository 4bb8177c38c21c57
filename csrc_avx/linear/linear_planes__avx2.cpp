// The linear ops with codes in bit planes at avx2; bodies in linear_planes.inl.h.
#include "linear/linear_planes.inl.h"
