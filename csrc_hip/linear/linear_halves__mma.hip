// linear of grouped integer formats by float16 inputs on matrix units: csrc_common/gpu/linear_halves.inl.h.
#include "gpu/linear_halves.inl.h"
