// relative_attention at neon; body in relative_attention.inl.h.
#include "attention/relative_attention.inl.h"
