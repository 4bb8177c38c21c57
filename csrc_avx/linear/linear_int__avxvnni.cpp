// The integer linear ops at avxvnni; bodies in linear_int.inl.h.
#include "linear/linear_int.inl.h"
