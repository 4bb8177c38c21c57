// kv_append at neon; body in kv_append.inl.h.
#include "attention/kv_append.inl.h"
