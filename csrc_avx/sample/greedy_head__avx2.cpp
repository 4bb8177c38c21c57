// greedy_head at avx2; body in greedy_head.inl.h.
#include "sample/greedy_head.inl.h"
