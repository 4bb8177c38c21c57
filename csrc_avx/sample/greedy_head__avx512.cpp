// greedy_head at avx512; body in greedy_head.inl.h.
#include "sample/greedy_head.inl.h"
