// attention on matrix units, heads of up to 256 dimensions: csrc_common/gpu/attention_mma.inl.h, attention_mma_varlen.inl.h, _bf16.
#define OCTAVO_HEAD_DIM 256
#include "gpu/attention_mma.inl.h"
#include "gpu/attention_mma_varlen.inl.h"
#include "gpu/attention_mma_varlen_bf16.inl.h"
