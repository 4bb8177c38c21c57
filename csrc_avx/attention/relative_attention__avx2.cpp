// relative_attention at avx2; body in relative_attention.inl.h.
#include "attention/relative_attention.inl.h"
