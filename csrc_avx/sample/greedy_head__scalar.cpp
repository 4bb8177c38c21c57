// greedy_head at scalar; body in greedy_head.inl.h.
#include "sample/greedy_head.inl.h"
