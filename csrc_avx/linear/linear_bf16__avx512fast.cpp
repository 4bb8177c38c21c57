// linear_bf16 at avx512fast: VDPBF16PS, for `--numerics fast` only. It adds the products of a pair one after the other (odd
// first) instead of the contract's two chains, so that last bits differ from every other level; twice the products per cycle.
//
// A packed pair row of a panel is one register: 16 outputs x 2 inputs. A tile is R rows x C panels, weights in registers,
// inputs broadcast a pair at a time. Denormals count as zero, as everywhere.
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kRecord = record_bytes(PackedKind::bf16, 0);

inline __m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  return (__m512bh)_mm512_set1_epi32(pair);
}

struct Pairs {
  static constexpr int kRows = 6, kPanels = 4, kSingles = 0, kInputBytes = 2;

  const LinearArgs& a;
  int64_t panel_bytes;

  // Rows come padded with zeros to whole records.
  template <int R, int C>
  void tile(const TileAt& at) const {
    const uint16_t* x = static_cast<const uint16_t*>(a.x) + at.row * a.ldx;
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<C> ahead(at, weight, panel_bytes);
    F acc[C][R];
    for (auto& of_panel : acc)
      for (F& v : of_panel) v = V::zero();
    for (int64_t b = 0; b < round_up(a.k, 32) / 32; ++b, x += 32, weight += kRecord) {
      ahead.ask(weight, kRecord);
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
    alignas(64) float sums[R * C * 16];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) V::store(sums + (r * C + c) * 16, acc[c][r]);
    finish_tile<V, R, C>(a, at.row, at.panel * kPanel, sums);
  }
};

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_kernel<Pairs>(a, step, lane, panel_bytes(PackedKind::bf16, 0, a.k));
}

}  // namespace octavo::OCTAVO_ISA_NS
