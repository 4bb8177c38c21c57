// kv_append at avx512; body in kv_append.inl.h.
#include "attention/kv_append.inl.h"
