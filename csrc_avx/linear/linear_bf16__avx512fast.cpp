// linear_bf16 at avx512fast: VDPBF16PS, for `--numerics fast` only. It adds the products of a pair one after the other (odd
// first) instead of the contract's two chains, so that last bits differ from every other level; twice the products per cycle.
//
// A packed pair row of a panel is one register: 16 outputs x 2 inputs. A tile is R rows x C panels, weights in registers,
// inputs broadcast a pair at a time. Denormals count as zero, as everywhere.
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kMaxRows = 6;
constexpr int64_t kRecord = record_bytes(PackedKind::bf16, 0);

inline __m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  return (__m512bh)_mm512_set1_epi32(pair);
}

// R rows x C panels, panel_bytes apart, over all `records`; rows come padded with zeros to whole records.
template <int R, int C>
inline void tile(const LinearArgs& a, int64_t row, int64_t panel, const uint8_t* weight, int64_t panel_bytes, int64_t records) {
  const uint16_t* x = static_cast<const uint16_t*>(a.x) + row * a.ldx;
  F acc[C][R];
  for (auto& of_panel : acc)
    for (F& v : of_panel) v = V::zero();
  for (int64_t b = 0; b < records; ++b, x += 32, weight += kRecord) {
    if constexpr (R <= kFewRows)
      for (int c = 0; c < C; ++c) prefetch_ahead<kRecord>(weight + c * panel_bytes);
#pragma GCC unroll 4
    for (int i = 0; i < 16; ++i) {
      __m512bh w[C];
      for (int c = 0; c < C; ++c) w[c] = (__m512bh)_mm512_loadu_si512(weight + c * panel_bytes + 64 * i);
      for (int r = 0; r < R; ++r) {
        const __m512bh v = pair_of(x + r * a.ldx + 2 * i);
        for (int c = 0; c < C; ++c) acc[c][r] = _mm512_dpbf16_ps(acc[c][r], w[c], v);
      }
    }
  }
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) {
      alignas(64) float sums[16];
      V::store(sums, acc[c][r]);
      finish<V>(a, row + r, (panel + c) * kPanel, sums);
    }
}

template <int R = kMaxRows>
inline void rows(const LinearArgs& a, const Span& s, int64_t panel_bytes) {
  if constexpr (R > 1) {
    if (s.rows < R) return rows<R - 1>(a, s, panel_bytes);
  }
  const int64_t records = round_up(a.k, 32) / 32;
  const auto* weight = static_cast<const uint8_t*>(a.weight);
  int64_t p = s.panel;
  const int64_t end = s.panel + s.panels;
  for (; p + 4 <= end; p += 4) tile<R, 4>(a, s.row, p, weight + p * panel_bytes, panel_bytes, records);
  for (; p < end; ++p) tile<R, 1>(a, s.row, p, weight + p * panel_bytes, panel_bytes, records);
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::bf16, 0, a.k);
  run_tiles<kMaxRows>(a, step, lane, bytes, [&](const Span& s) { rows(a, s, bytes); });
}

}  // namespace octavo::OCTAVO_ISA_NS
