// linear_bf16, linear_f16, linear_f32 at sve; body in sve_dense.inl.h.
#include "linear/sve_dense.inl.h"

namespace octavo::sve {

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<BF16Weights>(raw, step, lane); }
void linear_f16(const void* raw, const Step& step, const Lane& lane) { run_dense<F16Weights>(raw, step, lane); }
void linear_f32(const void* raw, const Step& step, const Lane& lane) { run_dense<F32Weights>(raw, step, lane); }

}  // namespace octavo::sve
