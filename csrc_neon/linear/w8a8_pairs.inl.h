// A tile of up to four pairs of rows x a panel, for w8a8: linear_w8a8.inl.h with SMMLA.
#pragma once
#include "linear/byte_pairs.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct W8a8Pairs : BytePairs<I, 1> {
  template <int P>
  void finish(const TileAt& at, int64_t rows, const Sums<P>& isum) const {
    const uint8_t* end = static_cast<const uint8_t*>(a.weight) + (at.panel + 1) * panel_bytes;
    const auto* scales = reinterpret_cast<const float*>(end - tail_bytes(PackedKind::w8a8));
    F sums[4][2][P];
    for (int part = 0; part < 4; ++part) {
      F s[2];
      halves_twice(V::load(scales + 4 * part), s);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const int64_t row = at.row + 2 * p, next = 2 * p + 1 < rows ? row + 1 : row;
        const F s_a = pair_of(a.scales[row * a.lds], a.scales[next * a.lds]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) sums[part][h][p] = V::mul(V::cvt_f32(isum[part][h][p]), V::mul(s_a, s[h]));
      }
    }
    finish_pairs<P>(a, at, rows, sums);
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
