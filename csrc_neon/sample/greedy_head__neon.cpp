// greedy_head at neon; body in greedy_head.inl.h.
#include "sample/greedy_head.inl.h"
