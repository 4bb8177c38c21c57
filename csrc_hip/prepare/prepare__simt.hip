// prepare, and norms with what follows them, on the plain arithmetic units: csrc_common/gpu/prepare.inl.h, norm_*.inl.h.
#include "gpu/norm_add.inl.h"
