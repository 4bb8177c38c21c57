// norm on the plain arithmetic units: csrc_common/gpu/norm.inl.h.
#include "gpu/norm.inl.h"
