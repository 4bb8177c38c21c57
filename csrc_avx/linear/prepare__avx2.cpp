// prepare at avx2; body in prepare.inl.h.
#include "ref/prepare.inl.h"
