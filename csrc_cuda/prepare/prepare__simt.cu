// prepare and what is joined with it, on the plain arithmetic units: csrc_common/gpu/prepare.inl.h, norm_prepare.inl.h.
#include "gpu/norm_prepare.inl.h"
