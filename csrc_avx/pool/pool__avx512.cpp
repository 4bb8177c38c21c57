// pool at avx512; body in pool.inl.h.
#include "pool/pool.inl.h"
