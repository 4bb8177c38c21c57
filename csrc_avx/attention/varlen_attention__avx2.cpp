// varlen_attention at avx2; body in varlen_attention.inl.h.
#include "attention/varlen_attention.inl.h"
