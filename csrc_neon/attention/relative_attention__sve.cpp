// relative_attention at sve: products by vectors of SVE.
#include "attention/sve_dots.inl.h"
// Their dot32_block comes before its use.
#include "attention/relative_attention.inl.h"
