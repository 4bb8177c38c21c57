// linear of K-quants on matrix units: csrc_common/gpu/linear_k256.inl.h.
#include "gpu/linear_k256.inl.h"
