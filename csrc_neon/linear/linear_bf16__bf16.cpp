// linear_bf16 at bf16; body in linear_dense.inl.h.
#include "linear/linear_dense.inl.h"

namespace octavo::bf16 {

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<BF16Weights>(raw, step, lane); }

}  // namespace octavo::bf16
