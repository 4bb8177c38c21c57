// norm at scalar; body in norm.inl.h.
#include "norm/norm.inl.h"
