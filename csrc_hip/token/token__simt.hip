// token on the plain arithmetic units: csrc_common/gpu/token.inl.h.
#include "gpu/token.inl.h"
