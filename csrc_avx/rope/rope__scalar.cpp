// rope at scalar; body in rope.inl.h.
#include "rope/rope.inl.h"
