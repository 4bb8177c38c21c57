// The end of linear_w8a8, shared by its vector and tile kernels: exact integer sums -> outputs.
#pragma once
#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline const float* w8a8_scales(const LinearArgs& a, int64_t panel) {
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
  return reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + (panel + 1) * bytes - tail_bytes(PackedKind::w8a8));
}

// Sums [R][16 * C] of a tile: of code + 128 with VNNI and tiles, which leaves 128 * (sum of the inputs) to be taken off; sums that
// wrapped wrap back.
template <int R, int C>
inline void w8a8_end(const LinearArgs& a, int64_t row, int64_t panel, const int32_t* isum) {
  constexpr int kWidth = 16 * C;
  alignas(64) float sums[R * kWidth];
  for (int c = 0; c < C; ++c) {
    const float* scales = w8a8_scales(a, panel + c);
    for (int p = 0; p < 16; p += V::kLanes) {
      const F s = V::load(scales + p);
      for (int r = 0; r < R; ++r) {
        const int64_t entry = (row + r) * a.lds;
        const int at = kWidth * r + 16 * c + p;
        I sum = load_bytes(isum + at);
        if constexpr (kVnni) sum = V::isub(sum, V::template shl<7>(V::ibroadcast(a.sums[entry])));
        V::store(sums + at, V::mul(V::cvt_f32(sum), V::mul(V::broadcast(a.scales[entry]), s)));
      }
    }
  }
  finish_tile<V, R, C>(a, row, panel * kPanel, sums);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
