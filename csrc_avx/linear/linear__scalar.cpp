// The linear ops at scalar; bodies in linear.inl.h, linear_planes.inl.h and linear_apart.inl.h.
#include "ref/linear.inl.h"
#include "ref/linear_planes.inl.h"
#include "ref/linear_apart.inl.h"
