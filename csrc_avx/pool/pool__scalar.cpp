// pool at scalar; body in pool.inl.h.
#include "pool/pool.inl.h"
