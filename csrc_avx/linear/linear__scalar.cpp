// The linear ops at scalar; bodies in linear.inl.h.
#include "ref/linear.inl.h"
