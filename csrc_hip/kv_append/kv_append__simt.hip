// kv_append and what is joined with it, on the plain arithmetic units: csrc_common/gpu/kv_append.inl.h, rope_append.inl.h.
#include "gpu/rope_append.inl.h"
