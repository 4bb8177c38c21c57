// paged_attention at neon; body in paged_attention.inl.h.
#include "attention/paged_attention.inl.h"
