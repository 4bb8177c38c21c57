// paged_attention at avx512; body in paged_attention.inl.h.
#include "attention/paged_attention.inl.h"
