// relative_attention at scalar; body in relative_attention.inl.h.
#include "attention/relative_attention.inl.h"
