// attention on matrix units: csrc_common/gpu/attention_mma.inl.h.
#include "gpu/attention_mma.inl.h"
