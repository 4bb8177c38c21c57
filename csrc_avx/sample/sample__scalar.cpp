// sample at scalar; body in sample.inl.h.
#include "sample/sample.inl.h"
