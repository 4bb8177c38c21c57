// varlen_attention at avx512; body in varlen_attention.inl.h.
#include "attention/varlen_attention.inl.h"
