// pack at scalar; bodies in pack.inl.h, pack_planes.inl.h and pack_apart.inl.h.
#include "ref/pack.inl.h"
#include "ref/pack_planes.inl.h"
#include "ref/pack_apart.inl.h"
