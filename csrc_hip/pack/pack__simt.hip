// pack on the plain arithmetic units: csrc_common/gpu/pack.inl.h.
#include "gpu/pack.inl.h"
