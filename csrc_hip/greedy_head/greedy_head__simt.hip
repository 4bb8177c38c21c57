// greedy_head on the plain arithmetic units: csrc_common/gpu/greedy_head.inl.h.
#include "gpu/greedy_head.inl.h"
