// add at neon; body in add.inl.h.
#include "token/add.inl.h"
