// The products of a segment on AMX tiles: TDPBF16PS, whose order of operations is dot32 (docs/numerics.md, "Float products").
//
// An A tile is 16 rows of a query tile x 32 values, a B tile 16 pair rows of a K or V tile as they lie in the page x 16 lanes.
// Sums of P.V stay in C over all blocks of a segment: weights of blocks that a row does not see are +0. Rows are computed in
// whole groups of 16; rows beyond the tile and blocks that a row does not see give sums that nobody reads.
#pragma once
#include "attention/segment.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kGroupRows = 16;

// bf16 copies of the A operands: q [rows][stride_q], weights [rows][kScoreStride].
struct TileOperands {
  uint16_t* q = nullptr;
  uint16_t* weights = nullptr;
  int64_t stride_q = 0;
};

// Tiles: 0, 1 C; 2 A, 3 and 4 B; 5 A and 6, 7 B of a last block with `rest` values (0: none).
inline TileConfig attention_config(int64_t rest) {
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) config.set(tile, 16, 64);
  if (rest > 0) {
    config.set(5, 16, static_cast<int>(2 * rest));
    config.set(6, static_cast<int>(rest / 2), 64);
    config.set(7, static_cast<int>(rest / 2), 64);
  }
  return config;
}

// Scores of one block of keys for the groups that hold rows [begin, end).
inline void tile_scores(const Tile& tile, const TileOperands& on, const uint16_t* keys, int64_t column, int64_t begin, int64_t end) {
  constexpr int64_t kKeyBytes = 2 * kBlock * 2;
  for (int64_t row = begin / kGroupRows * kGroupRows; row < end; row += kGroupRows) {
    const uint16_t* q = on.q + row * on.stride_q;
    _tile_zero(0);
    _tile_zero(1);
    int64_t d = 0;
    for (; d + 32 <= tile.head_dim; d += 32) {
      _tile_loadd(2, q + d, 2 * on.stride_q);
      _tile_loadd(3, keys + d * kBlock, kKeyBytes);
      _tile_loadd(4, keys + d * kBlock + 32, kKeyBytes);
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
    }
    if (d < tile.head_dim) {
      _tile_loadd(5, q + d, 2 * on.stride_q);
      _tile_loadd(6, keys + d * kBlock, kKeyBytes);
      _tile_loadd(7, keys + d * kBlock + 32, kKeyBytes);
      _tile_dpbf16ps(0, 5, 6);
      _tile_dpbf16ps(1, 5, 7);
    }
    float* out = tile.scores + row * kScoreStride + column;
    _tile_stored(0, out, 4 * kScoreStride);
    _tile_stored(1, out + 16, 4 * kScoreStride);
  }
}

// Weights to bf16; +0 in the blocks of [first, last] that the row does not see.
inline void tile_weights(const float* weights, uint16_t* out, BlockRange seen, BlockRange all, int64_t base) {
  using V = vec::Native;
  for (int64_t block = all.first; block <= all.last; ++block) {
    const int64_t at = block * kBlock - base;
    if (block < seen.first || block > seen.last)
      std::memset(out + at, 0, kBlock * sizeof(uint16_t));
    else
      for (int64_t i = at; i < at + kBlock; i += V::kLanes) V::store_bf16(out + i, V::load(weights + i));
  }
}

// P.V of one group over blocks [range.first, range.last], whose value tiles are values[block - range.first].
inline void tile_values(const Tile& tile, const TileOperands& on, int64_t row, BlockRange range, int64_t base,
                        const uint16_t* const* values) {
  const int64_t value_bytes = 4 * tile.head_dim;
  for (int64_t d = 0; d < tile.head_dim; d += 32) {
    const bool has_two = d + 32 <= tile.head_dim;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t block = range.first; block <= range.last; ++block) {
      const uint16_t* v = values[block - range.first] + 2 * d;
      _tile_loadd(2, on.weights + row * kScoreStride + block * kBlock - base, 2 * kScoreStride);
      _tile_loadd(3, v, value_bytes);
      _tile_dpbf16ps(0, 2, 3);
      if (has_two) {
        _tile_loadd(4, v + 32, value_bytes);
        _tile_dpbf16ps(1, 2, 4);
      }
    }
    float* out = tile.part + row * tile.head_dim + d;
    _tile_stored(0, out, 4 * tile.head_dim);
    if (has_two) _tile_stored(1, out + 16, 4 * tile.head_dim);
  }
}

// attend_segment on tiles, for bf16 pages and head_dim a multiple of 16. `tail` keeps the last, zero-filled value tile.
template <class V, class KV, class Ahead>
void attend_segment_on_tiles(Tile& tile, const TileOperands& on, KV& kv, const ScoreRule& rule, int64_t segment, Ahead& ahead) {
  const int64_t base = segment * kSegment;
  before_tiles();
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    tile_scores(tile, on, &kv.key_tile(block)->bits, block * kBlock - base, begin, end);
  });
  before_tiles();
  for (int64_t row = 0; row < tile.num_rows; row += kGroupRows) {
    const int64_t end = smaller(row + kGroupRows, tile.num_rows);
    const BlockRange all{larger(tile.rows[row].low, base) / kBlock, smaller(tile.rows[end - 1].high, base + kSegment - 1) / kBlock};
    if (tile.rows[end - 1].high < base || tile.rows[row].low >= base + kSegment) continue;
    for (int64_t r = row; r < end; ++r) {
      const BlockRange seen = visible_blocks(tile.rows[r], segment);
      float* scores = tile.scores + r * kScoreStride;
      if (seen.first <= seen.last) {
        const Asking asking(ahead.in_step(), kv.tile_bytes(), (seen.last - seen.first + 2) / 2);
        to_weights<V>(rule, kv, tile.rows[r], seen, scores, asking);
      }
      tile_weights(scores, on.weights + r * kScoreStride, seen, all, base);
    }
    const uint16_t* values[kSegment / kBlock];
    for (int64_t block = all.first; block <= all.last; ++block) values[block - all.first] = &kv.values(block, nullptr).at->bits;
    before_tiles();
    tile_values(tile, on, row, all, base, values);
    before_tiles();
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
