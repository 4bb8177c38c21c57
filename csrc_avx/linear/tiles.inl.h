// AMX tile configuration and the memory barriers that the compilers' intrinsics leave out.
//
// gcc 12 declares eight bytes read for LDTILECFG and no memory at all for TILELOADD, so stores before them could be dropped or
// moved; `before_tiles` keeps them. A configuration is a constant of its span: full tiles of 16 rows, and one pair of tiles for
// the last, shorter rows, so that nothing beyond a matrix is read and no row is computed for nothing.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline void before_tiles() { asm volatile("" ::: "memory"); }

// Palette 1 (Intel SDM, TILECFG): bytes per row and rows of eight tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int num_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    bytes[tile] = static_cast<uint16_t>(num_bytes);
  }
};
static_assert(sizeof(TileConfig) == 64, "LDTILECFG reads 64 bytes");

// Of products of two row tiles and two panels: 0-3 C[row tile][panel], 4-5 A of `rows` rows (up to 32), 6-7 B of `b_rows` rows;
// A rows have `a_bytes`.
inline TileConfig pairs_config(int64_t rows, int b_rows, int a_bytes) {
  const int first = rows < 16 ? static_cast<int>(rows) : 16, second = rows > 16 ? static_cast<int>(rows) - 16 : 16;
  TileConfig config;
  for (int p = 0; p < 2; ++p) {
    config.set(p, first, 64);
    config.set(2 + p, second, 64);
    config.set(6 + p, b_rows, 64);
  }
  config.set(4, first, a_bytes);
  config.set(5, second, a_bytes);
  return config;
}

// Tiles are released at the end of the scope, so that other code pays nothing for their state.
class TileScope {
 public:
  explicit TileScope(const TileConfig& config) {
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
