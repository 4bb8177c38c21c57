// attention on matrix units, heads of up to 128 dimensions: csrc_common/gpu/attention_mma.inl.h.
#define OCTAVO_HEAD_DIM 128
#include "gpu/attention_mma.inl.h"
