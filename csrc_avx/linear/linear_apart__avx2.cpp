// The linear ops of weights with scales apart at avx2; bodies in linear_w8a8.inl.h and linear_i4.inl.h.
#include "linear/linear_i4.inl.h"
#include "linear/linear_w8a8.inl.h"
