// rope at avx512; body in rope.inl.h.
#include "rope/rope.inl.h"
