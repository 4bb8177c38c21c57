// pool at avx2; body in pool.inl.h.
#include "pool/pool.inl.h"
