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
