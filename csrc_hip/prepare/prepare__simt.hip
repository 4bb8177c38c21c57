// prepare on the plain arithmetic units: csrc_common/gpu/prepare.inl.h.
#include "gpu/prepare.inl.h"
