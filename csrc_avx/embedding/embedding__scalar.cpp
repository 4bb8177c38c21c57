// embedding at scalar; body in embedding.inl.h.
#include "ref/embedding.inl.h"
