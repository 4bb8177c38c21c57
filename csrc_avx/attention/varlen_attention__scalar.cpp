// varlen_attention at scalar; body in varlen_attention.inl.h.
#include "attention/varlen_attention.inl.h"
