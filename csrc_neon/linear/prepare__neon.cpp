// prepare at neon; body in prepare.inl.h.
#include "ref/prepare.inl.h"
