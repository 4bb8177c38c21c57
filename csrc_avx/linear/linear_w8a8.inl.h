// linear_w8a8: int8 weights with one scale per output, inputs int8 with one scale per row; one exact sum over the whole row.
//
// isum is exact in int32, whatever the order, so that a tile may keep R rows x C panels of sums in registers and walk the
// whole row once. VNNI multiplies the stored codes (code + 128) and takes 128 * (sum of the row's inputs) off at the end; what
// wraps on the way wraps back. Elsewhere codes are made signed first. Then y = float(isum) * (s_a * s), two products.
#pragma once
#include "linear/tile_walk.inl.h"
#include "linear/w8a8_end.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Of a full tile: as many sums as registers carry beside the weights of a step.
#if defined(__AVX512VNNI__)
constexpr int kTileRows = 6, kTilePanels = 4;
#elif defined(__AVX512F__)
constexpr int kTileRows = 6, kTilePanels = 2;
#elif defined(__AVXVNNI__)
constexpr int kTileRows = 6, kTilePanels = 1;
#else
constexpr int kTileRows = 4, kTilePanels = 1;
#endif

inline I mac_codes(I acc, I codes, I x) {
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
  return dot4(acc, codes, x);
#else
  return mac_wide(acc, abs8(codes), with_sign8(x, codes));
#endif
}

// R rows x C panels. Of few vectors S sums per output take turns, so that the latency of a product does not show.
template <int R, int C>
inline void w8a8_tile(const LinearArgs& a, const TileAt& at, int64_t panel_bytes) {
  constexpr int kVectors = C * kParts, S = R * kVectors <= 2 ? 4 : R * kVectors <= 6 && kVnni ? 2 : 1;
  const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
  const uint8_t* codes = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
  const int64_t steps = round_up(a.k, 64) / 4;
  Ahead<C> ahead(at, codes, panel_bytes);
  I acc[S][R][kVectors];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[s][r][v] = V::ibroadcast(0);
  for (int64_t step = 0; step < steps; step += 4, codes += 256) {
    const bool is_turn = ahead.aim(codes);
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      if (is_turn) ahead.ask(64 * s);
      I w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        w[v] = load_bytes(codes + v / kParts * panel_bytes + 64 * s + v % kParts * 4 * V::kLanes);
        if constexpr (!kVnni) w[v] = xor_bits(w[v], bytes_of(128));
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I in = inputs_at(x + r * a.ldx + 4 * (step + s));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[s % S][r][v] = mac_codes(acc[s % S][r][v], w[v], in);
      }
    }
  }
  // Sums go through memory: were they taken out of registers in the loop below, the compiler would keep them in memory above.
  alignas(64) int32_t isum[R * C * 16];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      I sum = acc[0][r][v];
#pragma GCC unroll 8
      for (int s = 1; s < S; ++s) sum = V::iadd(sum, acc[s][r][v]);
      store_ints(isum + (r * kVectors + v) * V::kLanes, sum);
    }
  w8a8_end<R, C>(a, at.row, at.panel, isum);
}

struct W8a8 {
  static constexpr int kRows = kTileRows, kPanels = kTilePanels, kSingles = kStreamRows, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  void tile(const TileAt& at) const {
    w8a8_tile<R, C>(a, at, panel_bytes);
  }
};

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_kernel<W8a8>(a, step, lane, panel_bytes(PackedKind::w8a8, 0, a.k));
}

}  // namespace octavo::OCTAVO_ISA_NS
