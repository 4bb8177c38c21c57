// Eight rows turned into columns, for varlen_attention.
#pragma once
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// to[column * ld_to + row] = from[row * ld + column] for `columns` columns of eight rows.
inline void turn_rows(const float* from, int64_t ld, int64_t columns, float* to, int64_t ld_to) {
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4)
    for (int i = 0; i < 8; i += 4) {
      const float32x4_t a = vld1q_f32(from + i * ld + c), b = vld1q_f32(from + (i + 1) * ld + c);
      const float32x4_t d = vld1q_f32(from + (i + 2) * ld + c), e = vld1q_f32(from + (i + 3) * ld + c);
      const float64x2_t low = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), high = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
      const float64x2_t low2 = vreinterpretq_f64_f32(vtrn1q_f32(d, e)), high2 = vreinterpretq_f64_f32(vtrn2q_f32(d, e));
      float* y = to + c * ld_to + i;
      vst1q_f32(y, vreinterpretq_f32_f64(vtrn1q_f64(low, low2)));
      vst1q_f32(y + ld_to, vreinterpretq_f32_f64(vtrn1q_f64(high, high2)));
      vst1q_f32(y + 2 * ld_to, vreinterpretq_f32_f64(vtrn2q_f64(low, low2)));
      vst1q_f32(y + 3 * ld_to, vreinterpretq_f32_f64(vtrn2q_f64(high, high2)));
    }
  for (; c < columns; ++c)
    for (int i = 0; i < 8; ++i) to[c * ld_to + i] = from[i * ld + c];
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
