// linear of small floats on matrix units: csrc_common/gpu/linear_f8_mma.inl.h.
#include "gpu/linear_f8_mma.inl.h"
