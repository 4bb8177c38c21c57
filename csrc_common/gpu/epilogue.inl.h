// What follows a product: scale, bias, activation, gate, residual, in this order, each rounded alone (csrc_common/ref/epilogue.inl.h).
#pragma once

#include "contract/linear.h"
#include "gpu/rows.inl.h"

namespace octavo::gpu {

OCTAVO_GPU_FN float activate(float x, int32_t kind) {
  switch (kind) {
    case kSilu: return vec::silu<V>(x);
    case kGelu: return vec::gelu<V>(x);
    case kGeluTanh: return vec::gelu_tanh<V>(x);
    case kRelu: return x > 0.0f ? x : 0.0f;
    case kRelu2: return x > 0.0f ? x * x : 0.0f;
    case kTanh: return vec::tanh<V>(x);
    case kSigmoid: return vec::sigmoid<V>(x);
    default: return x;
  }
}

// The sum of output `out` of `row` -> y.
OCTAVO_GPU_FN void finish(const LinearArgs& a, int64_t row, int64_t out, float v) {
  if (a.scale != 1.0f) v = v * a.scale;
  if (a.bias) v = v + a.bias[out];
  if (a.activation != kNone) v = activate(v, a.activation);
  if (a.gate) v = v * a.gate[row * a.ldgate + out];
  if (a.residual) v = v + a.residual[row * a.ldres + out];
  a.y[row * a.ldy + out] = v;
}

}  // namespace octavo::gpu
