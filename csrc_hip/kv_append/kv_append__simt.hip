// kv_append and copy_blocks on the plain arithmetic units: csrc_common/gpu/kv_append.inl.h.
#include "gpu/kv_append.inl.h"
