// pool at neon; body in pool.inl.h.
#include "pool/pool.inl.h"
