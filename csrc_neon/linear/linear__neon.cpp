// linear at neon; bodies in linear.inl.h, linear_planes.inl.h, linear_apart.inl.h.
#include "ref/linear.inl.h"
#include "ref/linear_planes.inl.h"
#include "ref/linear_apart.inl.h"
