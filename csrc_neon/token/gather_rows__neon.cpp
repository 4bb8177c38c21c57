// gather_rows at neon; body in gather_rows.inl.h.
#include "token/gather_rows.inl.h"
