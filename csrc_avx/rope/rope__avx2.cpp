// rope at avx2; body in rope.inl.h.
#include "rope/rope.inl.h"
