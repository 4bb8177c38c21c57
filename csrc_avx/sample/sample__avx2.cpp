// sample at avx2; body in sample.inl.h.
#include "sample/sample.inl.h"
