// add at avx2; body in add.inl.h.
#include "token/add.inl.h"
