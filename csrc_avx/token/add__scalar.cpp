// add at scalar; body in add.inl.h.
#include "token/add.inl.h"
