// linear_w8a8: int8 weights with one scale per output, inputs int8 with one scale per row; one exact sum over the whole row.
//
// isum is exact in int32, whatever the order, so that a tile may keep R rows x C panels of sums in registers and walk the
// whole row once. VNNI multiplies the stored codes (code + 128) and takes 128 * (sum of the row's inputs) off at the end; what
// wraps on the way wraps back. Elsewhere codes are made signed first. Then y = float(isum) * (s_a * s), two products.
#pragma once
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

// R rows x C panels. With few rows S sums per output take turns, so that the latency of a product does not show. `is_stream`:
// all rows are in this tile, so that weights come from memory.
template <int R, int C, int S, bool is_stream>
inline void w8a8_tile(const LinearArgs& a, int64_t row, int64_t panel, int64_t panel_bytes) {
  constexpr int kVectors = C * kParts;
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx;
  const uint8_t* at = static_cast<const uint8_t*>(a.weight) + panel * panel_bytes;
  const int64_t steps = round_up(a.k, 64) / 4;
  I acc[S][R][kVectors];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[s][r][v] = V::ibroadcast(0);
  for (int64_t step = 0; step < steps; step += S, at += 64 * S) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      I w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        w[v] = load_bytes(at + v / kParts * panel_bytes + 64 * s + v % kParts * 4 * V::kLanes);
        if constexpr (!kVnni) w[v] = xor_bits(w[v], bytes_of(128));
        if (is_stream && v % kParts == 0) prefetch_ahead<64>(at + v / kParts * panel_bytes + 64 * s);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I in = inputs_at(x + r * a.ldx + 4 * (step + s));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[s][r][v] = mac_codes(acc[s][r][v], w[v], in);
      }
    }
  }
  // Sums go through memory: were they taken out of registers in the loop below, the compiler would keep them in memory above.
  alignas(64) int32_t isum[R][C * 16];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      I sum = acc[0][r][v];
#pragma GCC unroll 8
      for (int s = 1; s < S; ++s) sum = V::iadd(sum, acc[s][r][v]);
      store_ints(isum[r] + v * V::kLanes, sum);
    }
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) w8a8_end(a, row + r, panel + c, isum[r] + 16 * c);
}

template <bool is_stream, int R = kTileRows>
inline void w8a8_span(const LinearArgs& a, const Span& s, int64_t panel_bytes) {
  if constexpr (R > 1) {
    if (s.rows < R) return w8a8_span<is_stream, R - 1>(a, s, panel_bytes);
  }
  constexpr int C = R == kTileRows && !is_stream ? kTilePanels : 1, S = R == 1 ? 4 : R <= 3 ? 2 : 1;
  int64_t p = s.panel;
  const int64_t last = s.panel + s.panels;
  for (; p + C <= last; p += C) w8a8_tile<R, C, S, is_stream>(a, s.row, p, panel_bytes);
  if constexpr (C > 1)
    for (; p < last; ++p) w8a8_tile<R, 1, S, is_stream>(a, s.row, p, panel_bytes);
}

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
  const auto run = num_rows(a.rows, step) <= kTileRows ? w8a8_span<true> : w8a8_span<false>;
  run_tiles<kTileRows, kTilePanels>(a, step, lane, bytes, [&](const Span& s) { run(a, s, bytes); });
}

}  // namespace octavo::OCTAVO_ISA_NS
