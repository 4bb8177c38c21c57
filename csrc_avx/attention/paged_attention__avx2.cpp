// paged_attention at avx2; body in paged_attention.inl.h.
#include "attention/paged_attention.inl.h"
