// sample at avx512; body in sample.inl.h.
#include "sample/sample.inl.h"
