// linear_bf16 at svebf16; body in sve_dense.inl.h.
#include "linear/sve_dense.inl.h"

namespace octavo::svebf16 {

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<BF16Weights>(raw, step, lane); }

}  // namespace octavo::svebf16
