// pack at scalar; body in pack.inl.h.
#include "ref/pack.inl.h"
