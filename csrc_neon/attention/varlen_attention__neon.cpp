// varlen_attention at neon; body in varlen_attention.inl.h.
#include "attention/varlen_attention.inl.h"
