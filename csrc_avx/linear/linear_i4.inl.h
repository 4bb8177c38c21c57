// linear_i4: 4-bit weights in groups of 32, 64 or 128 inputs with scales (and zero points) kept apart, inputs int8 per (row, group).
//
// Per group, in order: acc = fma(float(isum), s_a * s, acc), isum = sum q_a q - z * asum exact in int32, z 8 where none is kept.
// A tile is R rows x C panels, all sums in registers; codes are unpacked once for R rows. Without VNNI products of 32 inputs are summed in int16 (see bytes.inl.h), then widened.
#pragma once
#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Of a full tile: int32 and float sums (without VNNI int16 sums too) and the unpacked codes fit the registers.
#if defined(__AVX512VNNI__)
constexpr int kI4Rows = 6, kI4Panels = 2;
#elif defined(__AVX512F__)
constexpr int kI4Rows = 4, kI4Panels = 1;
#elif defined(__AVXVNNI__)
constexpr int kI4Rows = 2, kI4Panels = 1;
#else
constexpr int kI4Rows = 2, kI4Panels = 1;
#endif

template <int R, int C>
struct Sums {
  I v[R][C * kParts];

  void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < C * kParts; ++i) v[r][i] = V::ibroadcast(0);
  }
  void add(const Sums& other) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < C * kParts; ++i) v[r][i] = V::iadd(v[r][i], widen_sum(other.v[r][i]));
  }
  // Four inputs, x of the first row, with the codes of every panel: high nibbles or low ones.
  template <bool is_high>
  void step(const uint8_t* codes, int64_t panel_bytes, const int8_t* x, int64_t ldx, I mask) {
    I w[C * kParts];
#pragma GCC unroll 16
    for (int i = 0; i < C * kParts; ++i) {
      const I pair = load_bytes(codes + i / kParts * panel_bytes + i % kParts * 4 * V::kLanes);
      w[i] = is_high ? high_nibbles(pair, mask) : and_bits(pair, mask);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const I in = inputs_at(x + r * ldx);
#pragma GCC unroll 16
      for (int i = 0; i < C * kParts; ++i) v[r][i] = mac(v[r][i], w[i], in);
    }
  }
  template <bool is_high>
  void half(const uint8_t* codes, int64_t panel_bytes, const int8_t* x, int64_t ldx, I mask) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) step<is_high>(codes + 64 * c, panel_bytes, x + 4 * c + (is_high ? 16 : 0), ldx, mask);
  }
};

// 32 inputs of every panel. Few sums: the two halves go side by side, so that the latency of a product does not show.
template <int R, int C>
inline void i4_chunk(Sums<R, C>& isum, const uint8_t* codes, int64_t panel_bytes, const int8_t* x, int64_t ldx, I mask) {
  if constexpr (kVnni && R * C * kParts > 4) {
    isum.template half<false>(codes, panel_bytes, x, ldx, mask);
    isum.template half<true>(codes, panel_bytes, x, ldx, mask);
  } else if constexpr (kVnni) {
    Sums<R, C> high;
    high.clear();
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      isum.template step<false>(codes + 64 * c, panel_bytes, x + 4 * c, ldx, mask);
      high.template step<true>(codes + 64 * c, panel_bytes, x + 16 + 4 * c, ldx, mask);
    }
    isum.add(high);
  } else {
    Sums<R, C> part;
    part.clear();
    part.template half<false>(codes, panel_bytes, x, ldx, mask);
    part.template half<true>(codes, panel_bytes, x, ldx, mask);
    isum.add(part);
  }
}

// `is_stream`: all rows are in this tile, so that weights come from memory.
template <int R, int C, bool has_zeros, bool is_stream>
inline void i4_tile(const LinearArgs& a, int64_t row, int64_t panel, int64_t panel_bytes) {
  const int64_t inputs = group_inputs(a.flags), groups = round_up(a.k, inputs) / inputs, bytes = record_bytes(PackedKind::i4, a.flags);
  const int64_t scales_at = inputs * kPanel / 2, zeros_at = scales_at + scale_bytes(a.flags) * kPanel;
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx;
  const float* s_a = a.scales + row * a.lds;
  const int32_t* asum = a.sums + row * a.lds;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * panel_bytes;
  const I mask = bytes_of(15);
  F sum[C * kParts][R];
#pragma GCC unroll 16
  for (int i = 0; i < C * kParts; ++i)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[i][r] = V::zero();
  for (int64_t g = 0; g < groups; ++g, record += bytes, ++s_a, ++asum) {
    Sums<R, C> isum;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const I less = V::ibroadcast(has_zeros ? -asum[r * a.lds] : -8 * asum[r * a.lds]);
#pragma GCC unroll 16
      for (int i = 0; i < C * kParts; ++i)  // |asum| < 2^15: a 16-bit product with a zero point is exact
        isum.v[r][i] =
            has_zeros ? madd16(widen_u8(record + i / kParts * panel_bytes + zeros_at + i % kParts * V::kLanes), less) : less;
    }
    for (int64_t i = 0; i < inputs; i += 32, x += 32) {
      if constexpr (is_stream) prefetch_ahead<256>(record + 8 * i);
      i4_chunk<R, C>(isum, record + 8 * i, panel_bytes, x, a.ldx, mask);
    }
    if constexpr (is_stream) prefetch_ahead<64>(record + scales_at);
#pragma GCC unroll 16
    for (int i = 0; i < C * kParts; ++i) {
      const F s = scale_part(record + i / kParts * panel_bytes + scales_at, a.flags, i % kParts);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sum[i][r] = V::fma(V::cvt_f32(isum.v[r][i]), V::mul(V::broadcast(s_a[r * a.lds]), s), sum[i][r]);
      }
    }
  }
  alignas(64) float acc[C * R * 16];  // through memory, as in w8a8_tile
#pragma GCC unroll 16
  for (int i = 0; i < C * kParts; ++i)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) V::store(acc + (i / kParts * R + r) * 16 + i % kParts * V::kLanes, sum[i][r]);
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) finish<V>(a, row + r, (panel + c) * kPanel, acc + (c * R + r) * 16);
}

template <bool has_zeros, bool is_stream, int R = kI4Rows>
inline void i4_span(const LinearArgs& a, const Span& s, int64_t panel_bytes) {
  if constexpr (R > 1) {
    if (s.rows < R) return i4_span<has_zeros, is_stream, R - 1>(a, s, panel_bytes);
  }
  constexpr int C = R == kI4Rows && !is_stream ? kI4Panels : 1;
  int64_t p = s.panel;
  const int64_t last = s.panel + s.panels;
  for (; p + C <= last; p += C) i4_tile<R, C, has_zeros, is_stream>(a, s.row, p, panel_bytes);
  if constexpr (C > 1)
    for (; p < last; ++p) i4_tile<R, 1, has_zeros, is_stream>(a, s.row, p, panel_bytes);
}

}  // namespace

void linear_i4(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::i4, a.flags, a.k);
  const bool is_stream = num_rows(a.rows, step) <= kI4Rows;
  const auto run = a.flags & kHasZeros ? (is_stream ? i4_span<true, true> : i4_span<true, false>)
                                       : (is_stream ? i4_span<false, true> : i4_span<false, false>);
  run_tiles<kI4Rows, kI4Panels>(a, step, lane, bytes, [&](const Span& s) { run(a, s, bytes); });
}

}  // namespace octavo::OCTAVO_ISA_NS
