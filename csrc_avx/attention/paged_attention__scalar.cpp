// paged_attention at scalar; body in paged_attention.inl.h.
#include "attention/paged_attention.inl.h"
