// prepare at avx512; body in prepare.inl.h.
#include "ref/prepare.inl.h"
