// gather_rows at scalar; body in gather_rows.inl.h.
#include "token/gather_rows.inl.h"
