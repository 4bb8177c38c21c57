// attention on the plain arithmetic units: csrc_common/gpu/attention.inl.h.
#include "gpu/attention.inl.h"
