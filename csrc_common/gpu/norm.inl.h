// rms_norm, layer_norm and rope, with the bits of CPUs: a group of sixteen threads per row (or head) holds the sixteen lanes.
#pragma once

#include "contract/token.h"
#include "gpu/rows.inl.h"

namespace octavo::gpu {

// A vector of a row that holds `heads` of them.
OCTAVO_GPU_FN int64_t vector_at(int64_t unit, const NormArgs& a, int64_t ld) {
  return unit / a.heads * ld + unit % a.heads * a.width;
}

OCTAVO_GPU_FN void rms_norm(const Step& step, const NormArgs& a) {
  each_row(num_rows(a.rows, step) * a.heads, [&](int64_t unit, bool is_real) {
    const float* x = a.x + vector_at(unit, a, a.ldx);
    const float sum = sum16_squares(a.width, [&](int64_t i) { return x[i]; });
    const float r = 1.0f / V::sqrt(sum / static_cast<float>(a.width) + a.eps);
    if (!is_real) return;
    float* y = a.y + vector_at(unit, a, a.ldy);
    for (int64_t i = group_lane(); i < a.width; i += kGroup) {
      const float v = x[i] * r;
      y[i] = a.weight ? v * a.weight[i] : v;
    }
  });
}

OCTAVO_GPU_FN void layer_norm(const Step& step, const NormArgs& a) {
  each_row(num_rows(a.rows, step) * a.heads, [&](int64_t unit, bool is_real) {
    const float* x = a.x + vector_at(unit, a, a.ldx);
    float sum = 0.0f;
    for (int64_t i = group_lane(); i < a.width; i += kGroup) sum = sum + x[i];
    const float mean = fold16(sum) / static_cast<float>(a.width);
    const float squares = sum16_squares(a.width, [&](int64_t i) { return x[i] - mean; });
    const float r = 1.0f / V::sqrt(squares / static_cast<float>(a.width) + a.eps);
    if (!is_real) return;
    float* y = a.y + vector_at(unit, a, a.ldy);
    for (int64_t i = group_lane(); i < a.width; i += kGroup) {
      const float d = (x[i] - mean) * r;
      if (a.weight)
        y[i] = a.bias ? V::fma(d, a.weight[i], a.bias[i]) : d * a.weight[i];
      else
        y[i] = a.bias ? d + a.bias[i] : d;
    }
  });
}

OCTAVO_GPU_FN void rope(const Step& step, const RopeArgs& a) {
  const int64_t half = a.rotary_dim / 2, width = a.heads * a.head_dim;
  each_element(step.num_tokens, width, [&](int64_t t, int64_t i) {
    const float* x = a.x + t * a.ldx;
    const int64_t at = i % a.head_dim;
    float y = x[i];
    if (at < a.rotary_dim) {
      const int64_t pair = a.interleaved ? at / 2 : at % half;
      const bool is_second = a.interleaved ? at % 2 : at >= half;
      const int64_t apart = a.interleaved ? 1 : half;
      const float* table = a.table + static_cast<int64_t>(step.positions[t]) * a.rotary_dim;
      const float c = table[pair], s = table[half + pair];
      const float other = x[is_second ? i - apart : i + apart];
      y = is_second ? V::fma(y, c, other * s) : V::fma(y, c, -(other * s));
    }
    a.y[t * a.ldy + i] = y;
  });
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(rms_norm, simt, Norm, 256, 16, 0) { octavo::gpu::rms_norm(*step_, a); }
OCTAVO_KERNEL(layer_norm, simt, Norm, 256, 16, 0) { octavo::gpu::layer_norm(*step_, a); }
OCTAVO_KERNEL(rope, simt, Rope, 256, 1, 256) { octavo::gpu::rope(*step_, a); }
