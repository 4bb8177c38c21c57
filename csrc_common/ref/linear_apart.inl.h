// linear_w8a8 and linear_i4 in plain C++: codes whose scales are kept apart (platforms/ops.py, linear; packed/panels.h).
//
// One panel of 16 outputs and one row at a time. w8a8: one exact int32 sum over the whole row, then float(isum) * (s_a * s),
// two products. i4: per group in order acc = fma(float(isum), s_a * s, acc), zero points taken off in int32.
#pragma once
#include "ref/linear.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline float scale_lane(const uint8_t* p, int32_t flags, int lane) {
  if (flags & kScaleF16) return half_lane(p, lane);
  if (flags & kScaleBf16) {
    uint16_t h;
    std::memcpy(&h, p + 2 * lane, 2);
    return float_of_bf16(h);
  }
  float f;
  std::memcpy(&f, p + 4 * lane, 4);
  return f;
}

inline void i4_record(const LinearArgs& a, int64_t row, int64_t group, const uint8_t* record, float* acc) {
  const int64_t inputs = group_inputs(a.flags);
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + inputs * group;
  const uint8_t* scales = record + inputs * kPanel / 2;
  const uint8_t* zeros = scales + scale_bytes(a.flags) * kPanel;
  const float s = a.scales[row * a.lds + group];
  const int32_t asum = a.sums[row * a.lds + group];
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = -(a.flags & kHasZeros ? zeros[lane] : 8) * asum;
    for (int i = 0; i < inputs; ++i) isum += x[i] * code4(record + i / 32 * 256, i % 32, lane);
    acc[lane] = fma_scalar(static_cast<float>(isum), s * scale_lane(scales, a.flags, lane), acc[lane]);
  }
}

inline void w8a8_row(const LinearArgs& a, int64_t row, int64_t panel) {
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
  const uint8_t* codes = static_cast<const uint8_t*>(a.weight) + panel * bytes;
  const uint8_t* scales = codes + bytes - tail_bytes(PackedKind::w8a8);
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx;
  const float s = a.scales[row * a.lds];
  float sums[16];
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0;
    for (int64_t i = 0; i < a.k; ++i) isum += x[i] * (codes[(i / 4 * 16 + lane) * 4 + i % 4] - 128);
    sums[lane] = static_cast<float>(isum) * (s * scale_lane(scales, 0, lane));
  }
  finish<vec::F32x1>(a, row, panel * kPanel, sums);
}

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t rows = num_rows(a.rows, step);
  for (int64_t begin, end; lane.claim(round_up(a.n, kPanel) / kPanel * rows, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) w8a8_row(a, unit % rows, unit / rows);
}
void linear_i4(const void* raw, const Step& step, const Lane& lane) { run_records(raw, step, lane, PackedKind::i4, i4_record); }

}  // namespace octavo::OCTAVO_ISA_NS
