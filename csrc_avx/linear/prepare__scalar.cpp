// prepare at scalar; body in prepare.inl.h.
#include "ref/prepare.inl.h"
