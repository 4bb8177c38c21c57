// rope at neon; body in rope.inl.h.
#include "rope/rope.inl.h"
