// The integer linear ops at i8mm; bodies in linear_grouped.inl.h, linear_k.inl.h and linear_w8a8.inl.h.
#include "linear/linear_grouped.inl.h"
#include "linear/linear_k.inl.h"
#include "linear/linear_w8a8.inl.h"
