// linear_w8a8: int8 weights with one scale per output, inputs int8 with one scale per row; one exact sum over the whole row, then
// y = float(isum) * (s_a * s), two products.
#pragma once
#include "linear/dots.inl.h"
#include "linear/tile_walk.inl.h"
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "linear/w8a8_pairs.inl.h"
#endif

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int rows>
struct W8a8 {
  static constexpr int kRows = rows, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  // Of one or two rows two sums per output take turns, so that the latency of a product does not show.
  template <int R, int C>
  [[gnu::noinline]] void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    constexpr int S = R <= 2 ? 2 : 1;
    const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
    const uint8_t* codes = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    const int64_t k = round_up(a.k, 64);
    Ahead<1> ahead(at, codes, panel_bytes);
    Ints<R, 4> isum[S];
    for (auto& sum : isum) sum.clear();
    for (int64_t i = 0; i < k; i += 16) {
      ahead.ask(codes, 256);
      Bytes in[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) in[r] = load_bytes(x + r * a.ldx + i);
      Dots<R, 4> dots[S];
      each<0, 4>([&](auto n) __attribute__((always_inline)) {
        constexpr int s = n / 2 % S;  // two steps to a sum
        Bytes parts[4];
        load_four(codes, parts);
        dots[s].template add<n, n % 2, 2>(&isum[s], in, [&](auto p) __attribute__((always_inline)) { return parts[p]; });
      });
    }
    const auto* scales = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + (at.panel + 1) * panel_bytes -
                                                        tail_bytes(PackedKind::w8a8));
    alignas(16) float sums[R * 16];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < 4; ++i) {
        I sum = isum[0].v[r][i];
        if constexpr (S == 2) sum = vaddq_s32(sum, isum[1].v[r][i]);
        V::store(sums + 16 * r + 4 * i,
                 V::mul(V::cvt_f32(sum), V::mul(V::broadcast(a.scales[(at.row + r) * a.lds]), V::load(scales + 4 * i))));
      }
    finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, sums);
  }
};

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
#if defined(__ARM_FEATURE_MATMUL_INT8)
  const W8a8Pairs pairs{a, bytes};
  if (is_paired(pairs, step, lane)) return run_pairs(pairs, step, lane);
  run_kernel<W8a8<kFewRows>>(a, step, lane, bytes);
#else
  run_kernel<W8a8<4>>(a, step, lane, bytes);
#endif
}

}  // namespace octavo::OCTAVO_ISA_NS
