// Rows in pairs, for SMMLA and BFMMLA: sums of two rows x two outputs from 8 bytes of inputs of each, [r0 o0, r0 o1, r1 o0, r1 o1].
//
// The rows of a block are interleaved in scratch once, for all panels that a thread multiplies them with before the next block: per
// tile of up to four pairs, record after record of [bytes / 8][pairs] vectors (8 bytes of a row, the same 8 of the next), then per
// pair the vectors that the format adds. The last row of an odd number makes a pair with itself. What a Kernel is, pair_walk.inl.h says.
#pragma once
#include "linear/dots.inl.h"
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using I64 = int64x2_t;
constexpr int kTilePairs = 4;
constexpr int64_t kMostPairedRows = 128, kStagedBytes = 512 << 10;  // of a block: beside weights in L2

template <class Kernel>
inline int64_t staged_bytes(const Kernel& kernel) {  // of a pair's record
  return 2 * kernel.inputs() * Kernel::kInputBytes + 16 * Kernel::kEndVectors;
}
template <class Kernel>
inline int64_t num_records(const Kernel& kernel) {
  return round_up(kernel.a.k, kernel.inputs()) / kernel.inputs();
}

// What belongs to the inputs of a row.
struct RowEnds {
  const float* scales;
  const int32_t* sums;
};

template <int P, class Kernel>
inline void stage(const Kernel& kernel, int64_t row, int64_t rows, uint8_t* to) {
  const int64_t records = num_records(kernel), row_bytes = kernel.inputs() * Kernel::kInputBytes;
  const int64_t bytes = P * staged_bytes(kernel);
  const LinearArgs& a = kernel.a;
  const auto at_row = [&](int64_t r) { return static_cast<const int8_t*>(a.x) + r * a.ldx * Kernel::kInputBytes; };
  for (int p = 0; p < P; ++p) {
    const int64_t first = row + 2 * p, next = 2 * p + 1 < rows ? first + 1 : first;
    RowEnds ends[2] = {};
    if constexpr (Kernel::kEndVectors > 0) {
      ends[0] = {a.scales + first * a.lds, a.sums + Kernel::kSumsPerScale * first * a.lds};
      ends[1] = {a.scales + next * a.lds, a.sums + Kernel::kSumsPerScale * next * a.lds};
    }
    const int8_t *x = at_row(first), *y = at_row(next);
    for (int64_t r = 0; r < records; ++r) {
      uint8_t* at = to + r * bytes + 16 * p;
      for (int64_t i = 0; i < row_bytes; i += 32, x += 32, y += 32, at += 64 * P) {
        I64 step[4];
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const I64 of_x = vreinterpretq_s64_s8(vld1q_s8(x + 16 * half)), of_y = vreinterpretq_s64_s8(vld1q_s8(y + 16 * half));
          step[2 * half] = vzip1q_s64(of_x, of_y);
          step[2 * half + 1] = vzip2q_s64(of_x, of_y);
        }
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s)
          vst1q_s64(reinterpret_cast<int64_t*>(at + 16 * P * s), step[Kernel::kSwaps ? s / 2 + s % 2 * 2 : s]);
      }
      Kernel::end(ends, r, at, 16 * P);
    }
  }
}

// A float of each of two rows, twice.
OCTAVO_INLINE F pair_of(float a, float b) { return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); }
OCTAVO_INLINE I pair_of(int32_t a, int32_t b) { return vcombine_s32(vdup_n_s32(a), vdup_n_s32(b)); }

// Each half of four outputs' values, twice.
OCTAVO_INLINE void halves_twice(F x, F* out) {
  const float64x2_t wide = vreinterpretq_f64_f32(x);
  out[0] = vreinterpretq_f32_f64(vdupq_laneq_f64(wide, 0));
  out[1] = vreinterpretq_f32_f64(vdupq_laneq_f64(wide, 1));
}

// Float16 of N parts (four outputs each), the same way.
template <int N>
OCTAVO_INLINE void half_pairs(const uint8_t* p, F* out) {
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) halves_twice(V::load_f16(reinterpret_cast<const uint16_t*>(p) + 4 * i), out + 2 * i);
}

// Sums [4 parts][2][P] of pairs, as rows, to y.
template <int P>
[[gnu::noinline]] void finish_pairs(const LinearArgs& a, const TileAt& at, int64_t rows, const F (&sums)[4][2][P]) {
  alignas(16) float out[2 * P * 16];
  const int64_t col = at.panel * kPanel;
  const bool is_plain =
      a.scale == 1.0f && !a.bias && a.activation == kNone && !a.gate && !a.residual && !a.narrow && a.n - col >= kPanel;
  float* to = is_plain ? a.y + at.row * a.ldy + col : out;
  const int64_t stride = is_plain ? a.ldy : 16;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p, to += 2 * stride) {
    F row[2][4];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const float64x2_t low = vreinterpretq_f64_f32(sums[part][0][p]), high = vreinterpretq_f64_f32(sums[part][1][p]);
      row[0][part] = vreinterpretq_f32_f64(vzip1q_f64(low, high));
      row[1][part] = vreinterpretq_f32_f64(vzip2q_f64(low, high));
    }
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) V::store(to + 4 * part, row[0][part]);
    if (is_plain && 2 * p + 1 == rows) return;
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) V::store(to + stride + 4 * part, row[1][part]);
  }
  if (is_plain) return;
  if (rows == 2 * P)
    finish_tile<V, 2 * P, 1>(a, at.row, col, out);
  else
    finish_tile<V, 2 * P - 1, 1>(a, at.row, col, out);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
