// embedding at neon; body in embedding.inl.h.
#include "ref/embedding.inl.h"
