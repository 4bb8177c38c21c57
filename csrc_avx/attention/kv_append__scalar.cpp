// kv_append at scalar; body in kv_append.inl.h.
#include "attention/kv_append.inl.h"
