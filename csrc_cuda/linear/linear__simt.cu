// linear on the plain arithmetic units: csrc_common/gpu/linear.inl.h, linear_f8.inl.h.
#include "gpu/linear.inl.h"
#include "gpu/linear_f8.inl.h"
