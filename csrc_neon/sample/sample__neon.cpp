// sample at neon; body in sample.inl.h.
#include "sample/sample.inl.h"
