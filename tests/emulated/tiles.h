// The AMX tile instructions as plain loops, for shim.h.
//
// Eight tiles of 16 rows x 64 bytes and their configuration, per thread. Semantics after Intel's SDM pseudo-code; reads
// and writes outside the configured shape do not happen, and rows and bytes beyond it are zeroed.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo_emulated {

struct Tiles {
  uint8_t rows[8] = {};
  uint16_t bytes[8] = {};
  uint8_t data[8][16][64] = {};
  uint64_t num_loads = 0, num_products = 0;  // since the thread began
};
inline Tiles& tiles() {
  static thread_local Tiles state;
  return state;
}
inline void forget(Tiles& t) {
  const uint64_t loads = t.num_loads, products = t.num_products;
  t = Tiles{};
  t.num_loads = loads;
  t.num_products = products;
}
inline void tile_loadconfig(const void* config) {
  const uint8_t* c = static_cast<const uint8_t*>(config);
  Tiles& t = tiles();
  forget(t);
  if (c[0] != 1) __builtin_trap();  // palette
  for (int i = 0; i < 8; ++i) {
    std::memcpy(&t.bytes[i], c + 16 + 2 * i, 2);
    t.rows[i] = c[48 + i];
    if (t.rows[i] > 16 || t.bytes[i] > 64) __builtin_trap();
  }
}
inline void tile_release() { forget(tiles()); }
inline void tile_zero(int i) { std::memset(tiles().data[i], 0, sizeof tiles().data[i]); }
inline void tile_loadd(int i, const void* base, int64_t stride) {
  Tiles& t = tiles();
  if (t.rows[i] == 0) __builtin_trap();  // as the processor does for a tile that is not configured
  tile_zero(i);
  ++t.num_loads;
  for (int r = 0; r < t.rows[i]; ++r) std::memcpy(t.data[i][r], static_cast<const uint8_t*>(base) + r * stride, t.bytes[i]);
}
inline void tile_stored(int i, void* base, int64_t stride) {
  Tiles& t = tiles();
  if (t.rows[i] == 0) __builtin_trap();
  for (int r = 0; r < t.rows[i]; ++r) std::memcpy(static_cast<uint8_t*>(base) + r * stride, t.data[i][r], t.bytes[i]);
}
// The shape rules whose breach is an exception on the processor.
inline void check_product(int c, int a, int b) {
  Tiles& t = tiles();
  ++t.num_products;
  if (t.rows[c] != t.rows[a] || t.bytes[c] != t.bytes[b] || t.bytes[a] != 4 * t.rows[b] || t.rows[c] == 0) __builtin_trap();
}
template <bool a_is_signed, bool b_is_signed>
inline void tile_dpb(int c, int a, int b) {
  Tiles& t = tiles();
  check_product(c, a, b);
  for (int m = 0; m < t.rows[c]; ++m)
    for (int k = 0; k < t.bytes[a] / 4; ++k)
      for (int n = 0; n < t.bytes[c] / 4; ++n) {
        uint32_t sum;
        std::memcpy(&sum, &t.data[c][m][4 * n], 4);
        for (int j = 0; j < 4; ++j) {
          const uint8_t x = t.data[a][m][4 * k + j], y = t.data[b][k][4 * n + j];
          sum += static_cast<uint32_t>((a_is_signed ? static_cast<int8_t>(x) : x) * (b_is_signed ? static_cast<int8_t>(y) : y));
        }
        std::memcpy(&t.data[c][m][4 * n], &sum, 4);
      }
}
inline float bf16_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  const uint32_t u = (h & 0x7F80) == 0 ? (h & 0x8000u) << 16 : static_cast<uint32_t>(h) << 16;  // denormals are zero
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
// TDPBF16PS: per element one chain of fma over the even and one over the odd inputs of the tile, from zero, then c += even +
// odd; denormals are zero, whatever MXCSR says (here the caller's FTZ and DAZ do it).
inline void tile_dpbf16ps(int c, int a, int b) {
  Tiles& t = tiles();
  check_product(c, a, b);
  for (int m = 0; m < t.rows[c]; ++m)
    for (int n = 0; n < t.bytes[c] / 4; ++n) {
      float even = 0.0f, odd = 0.0f, sum;
      for (int k = 0; k < t.bytes[a] / 4; ++k) {
        even = __builtin_fmaf(bf16_at(&t.data[a][m][4 * k]), bf16_at(&t.data[b][k][4 * n]), even);
        odd = __builtin_fmaf(bf16_at(&t.data[a][m][4 * k + 2]), bf16_at(&t.data[b][k][4 * n + 2]), odd);
      }
      std::memcpy(&sum, &t.data[c][m][4 * n], 4);
      sum = sum + (even + odd);
      std::memcpy(&t.data[c][m][4 * n], &sum, 4);
    }
}

}  // namespace octavo_emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig(p) octavo_emulated::tile_loadconfig(p)
#define _tile_release() octavo_emulated::tile_release()
#define _tile_zero(c) octavo_emulated::tile_zero(c)
#define _tile_loadd(c, p, s) octavo_emulated::tile_loadd(c, p, s)
#define _tile_stream_loadd(c, p, s) octavo_emulated::tile_loadd(c, p, s)
#define _tile_stored(c, p, s) octavo_emulated::tile_stored(c, p, s)
#define _tile_dpbssd(c, a, b) octavo_emulated::tile_dpb<true, true>(c, a, b)
#define _tile_dpbsud(c, a, b) octavo_emulated::tile_dpb<true, false>(c, a, b)
#define _tile_dpbusd(c, a, b) octavo_emulated::tile_dpb<false, true>(c, a, b)
#define _tile_dpbuud(c, a, b) octavo_emulated::tile_dpb<false, false>(c, a, b)
#define _tile_dpbf16ps(c, a, b) octavo_emulated::tile_dpbf16ps(c, a, b)
