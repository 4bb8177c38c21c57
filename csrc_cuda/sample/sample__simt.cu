// sample on the plain arithmetic units: csrc_common/gpu/sample.inl.h.
#include "gpu/sample.inl.h"
