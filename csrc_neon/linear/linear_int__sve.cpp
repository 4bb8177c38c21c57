// The integer linear ops at sve; bodies in sve_groups.inl.h, sve_k.inl.h and sve_w8a8.inl.h.
#include "linear/sve_groups.inl.h"
#include "linear/sve_k.inl.h"
#include "linear/sve_w8a8.inl.h"
