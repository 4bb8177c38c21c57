// The end of linear_w8a8, shared by its vector and tile kernels: exact integer sums -> outputs.
#pragma once
#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline const float* w8a8_scales(const LinearArgs& a, int64_t panel) {
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
  return reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + (panel + 1) * bytes - tail_bytes(PackedKind::w8a8));
}

// Sums of the 16 outputs of a panel: of code + 128 with VNNI and tiles, which leaves 128 * (sum of the inputs) to be taken off;
// sums that wrapped wrap back.
inline void w8a8_end(const LinearArgs& a, int64_t row, int64_t panel, const int32_t* isum) {
  const float* scales = w8a8_scales(a, panel);
  const F s_a = V::broadcast(a.scales[row * a.lds]);
  const I surplus = V::ibroadcast(static_cast<int32_t>(static_cast<uint32_t>(a.sums[row * a.lds]) * 128u));
  alignas(64) float sums[16];
  for (int p = 0; p < 16; p += V::kLanes) {
    I sum = load_bytes(isum + p);
    if constexpr (kVnni) sum = V::isub(sum, surplus);
    V::store(sums + p, V::mul(V::cvt_f32(sum), V::mul(s_a, V::load(scales + p))));
  }
  finish<V>(a, row, panel * kPanel, sums);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
