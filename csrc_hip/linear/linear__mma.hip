// linear on matrix units: csrc_common/gpu/linear_mma.inl.h.
#include "gpu/linear_mma.inl.h"
