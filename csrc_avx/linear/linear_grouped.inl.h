// linear_q4g32 and linear_q8g32: weights in groups of 32 inputs with float16 scales, inputs int8 per (row, 32).
//
// Per group, in order: acc = fma(float(isum - zero * asum), s_a * d, acc), with a minimum then acc = fma(float(asum), s_a * m,
// acc). isum is exact in int32, so that every level agrees. A tile is R rows x one panel: a code vector is loaded and
// unpacked once and multiplied with R broadcast dwords of inputs.
#pragma once
#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kMaxRows = V::kLanes == 16 ? 8 : 4;  // as many int32 and float32 accumulators as registers carry

template <int R>
struct GroupTile {
  const int8_t* x[R];
  const float* scales[R];
  const int32_t* sums[R];
  F acc[R][kParts];

  GroupTile(const LinearArgs& a, int64_t row) {
    for (int r = 0; r < R; ++r) {
      x[r] = static_cast<const int8_t*>(a.x) + (row + r) * a.ldx;
      scales[r] = a.scales + (row + r) * a.lds;
      sums[r] = a.sums + (row + r) * a.lds;
      for (int p = 0; p < kParts; ++p) acc[r][p] = V::zero();
    }
  }

  template <bool has_min, int zero>
  void end_group(int64_t g, const I (&isum)[R][kParts], const uint8_t* halves) {
    for (int p = 0; p < kParts; ++p) {
      const F d = half_part(halves, p);
      const F m = has_min ? half_part(halves + 32, p) : V::zero();
      for (int r = 0; r < R; ++r) {
        const F s = V::broadcast(scales[r][g]);
        I sum = isum[r][p];
        if (zero != 0) sum = V::isub(sum, V::ibroadcast(zero * sums[r][g]));
        acc[r][p] = V::fma(V::cvt_f32(sum), V::mul(s, d), acc[r][p]);
        if (has_min) acc[r][p] = V::fma(V::cvt_f32(V::ibroadcast(sums[r][g])), V::mul(s, m), acc[r][p]);
      }
    }
  }
};

template <int32_t flags>
struct Q4g32 {
  static constexpr PackedKind kKind = PackedKind::q4g32;
  static constexpr int32_t kFlags = flags;

  template <int R>
  static void tile(const LinearArgs& a, int64_t row, int64_t panel, const uint8_t* record, int64_t groups) {
    GroupTile<R> t(a, row);
    const I mask = bytes_of(15);
    for (int64_t g = 0; g < groups; ++g, record += record_bytes(kKind, flags)) {
      if constexpr (R <= kFewRows) prefetch_ahead<record_bytes(kKind, flags)>(record);
      I sum[R][kParts];
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) sum[r][p] = V::ibroadcast(0);
      for (int c = 0; c < 4; ++c) {
        I low[kParts], high[kParts];
        for (int p = 0; p < kParts; ++p) {
          const I codes = load_bytes(record + 64 * c + 4 * V::kLanes * p);
          low[p] = and_bits(codes, mask);
          high[p] = high_nibbles(codes, mask);
        }
        for (int r = 0; r < R; ++r) {
          const I x0 = inputs_at(t.x[r] + 32 * g + 4 * c), x1 = inputs_at(t.x[r] + 32 * g + 16 + 4 * c);
          for (int p = 0; p < kParts; ++p) sum[r][p] = mac(mac(sum[r][p], low[p], x0), high[p], x1);
        }
      }
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) sum[r][p] = widen_sum(sum[r][p]);
      t.template end_group<(flags & kHasMin) != 0, (flags & kZero8) ? 8 : 0>(g, sum, record + 256);
    }
    finish_rows<R>(a, row, panel, t.acc);
  }
};

template <int32_t flags>
struct Q8g32 {
  static constexpr PackedKind kKind = PackedKind::q8g32;
  static constexpr int32_t kFlags = flags;
  static constexpr bool kUnsigned = (flags & kHasMin) != 0;

  template <int R>
  static void tile(const LinearArgs& a, int64_t row, int64_t panel, const uint8_t* record, int64_t groups) {
    GroupTile<R> t(a, row);
    for (int64_t g = 0; g < groups; ++g, record += record_bytes(kKind, flags)) {
      if constexpr (R <= kFewRows) prefetch_ahead<record_bytes(kKind, flags)>(record);
      I sum[R][kParts];
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) sum[r][p] = V::ibroadcast(0);
      for (int c = 0; c < 8; ++c) {
        I codes[kParts];
        for (int p = 0; p < kParts; ++p) codes[p] = load_bytes(record + 64 * c + 4 * V::kLanes * p);
        for (int r = 0; r < R; ++r) {
          const I x = inputs_at(t.x[r] + 32 * g + 4 * c);
          for (int p = 0; p < kParts; ++p)
            sum[r][p] = kUnsigned ? mac_wide(sum[r][p], codes[p], x) : mac_signed(sum[r][p], codes[p], x);
        }
      }
      t.template end_group<kUnsigned, kVnni && !kUnsigned ? 128 : 0>(g, sum, record + 512);
    }
    finish_rows<R>(a, row, panel, t.acc);
  }
};

template <class Format, int R = kMaxRows>
inline void rows_tile(const LinearArgs& a, const Span& s, int64_t panel, const uint8_t* record, int64_t groups) {
  if constexpr (R > 1) {
    if (s.rows < R) return rows_tile<Format, R - 1>(a, s, panel, record, groups);
  }
  Format::template tile<R>(a, s.row, panel, record, groups);
}

template <class Format>
inline void run_format(const LinearArgs& a, const Step& step, const Lane& lane) {
  const int64_t inputs = record_inputs(Format::kKind), records = round_up(a.k, inputs) / inputs;
  const int64_t bytes = records * record_bytes(Format::kKind, Format::kFlags);
  run_tiles<kMaxRows>(a, step, lane, bytes, [&](const Span& s) {
    for (int64_t p = s.panel; p < s.panel + s.panels; ++p)
      rows_tile<Format>(a, s, p, static_cast<const uint8_t*>(a.weight) + p * bytes, records);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
