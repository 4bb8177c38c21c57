// pack at neon; bodies in pack.inl.h, pack_planes.inl.h, pack_apart.inl.h.
#include "ref/pack.inl.h"
#include "ref/pack_planes.inl.h"
#include "ref/pack_apart.inl.h"
