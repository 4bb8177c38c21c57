// linear of grouped integer formats on matrix units: csrc_common/gpu/linear_groups.inl.h.
#include "gpu/linear_groups.inl.h"
