// norm at neon; body in norm.inl.h.
#include "norm/norm.inl.h"
