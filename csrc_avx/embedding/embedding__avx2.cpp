// embedding at avx2; body in embedding.inl.h.
#include "ref/embedding.inl.h"
