// prepare_bf16 at bf16; body in prepare_bf16.inl.h.
#include "ref/prepare_bf16.inl.h"
