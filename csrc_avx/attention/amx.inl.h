// The products of a segment on AMX tiles: TDPBF16PS, whose order of operations is dot32 (docs/numerics.md, "Float products").
//
// An A tile is 16 rows of a query tile x 32 values, a B tile 16 pair rows of a K or V tile as they lie in the page x 16 lanes.
// Sums of P.V stay in C over all blocks of a segment: weights of blocks that a row does not see are +0. Rows are computed in
// whole groups of 16; rows beyond the tile and blocks that a row does not see give sums that nobody reads. Tiles of few rows, and
// head sizes that are no multiple of 16, take the vector path: the same bits, and with fewer than half of its rows filled a tile
// gains nothing.
#pragma once
#include "attention/segment.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kGroupRows = 16;
constexpr int64_t kFewTileRows = 8;

inline int64_t groups_of(int64_t rows) { return (rows + kGroupRows - 1) / kGroupRows; }

// bf16 copies of the queries: [rows][stride_q].
struct TileOperands {
  uint16_t* q = nullptr;
  int64_t stride_q = 0;
};

// Queries are bf16 values already (load_query).
inline void narrow_queries(const Tile& tile, const TileOperands& on) {
  using V = vec::Native;
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    uint16_t* out = on.q + r * on.stride_q;
    for (int64_t d = 0; d < tile.head_dim; d += V::kLanes) V::store_bf16(out + d, V::load(tile.q + r * tile.head_dim + d));
  }
}

// As TileScope, whose destructor would want exception tables where units are claimed.
inline void load_config(const TileConfig& config) {
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Tiles: 0-3 C, 4 A, 5 B; 6 A and 7 B of a last block with `rest` values (0: none). One tile for every B: its next load gets another
// register of the processor's, and four sums keep the multiplier busy, whose products take as long as three of them to come out.
inline TileConfig attention_config(int64_t rest) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.set(tile, 16, 64);
  if (rest > 0) {
    config.set(6, 16, static_cast<int>(2 * rest));
    config.set(7, static_cast<int>(rest / 2), 64);
  }
  return config;
}

// C of one or two groups of rows from q and of 32 keys += products of the values from `keys` on. `a`, `b`: numbers of tiles.
#define OCTAVO_SCORES(a, b)                                    \
  do {                                                         \
    _tile_loadd(a, q, 2 * on.stride_q);                        \
    _tile_loadd(b, at, kKeyBytes);                             \
    _tile_dpbf16ps(0, a, b);                                   \
    _tile_loadd(b, at + 32, kKeyBytes);                        \
    _tile_dpbf16ps(1, a, b);                                   \
    if constexpr (has_two) {                                   \
      _tile_loadd(a, q + kGroupRows * on.stride_q, 2 * on.stride_q); \
      _tile_dpbf16ps(3, a, b);                                 \
      _tile_loadd(b, at, kKeyBytes);                           \
      _tile_dpbf16ps(2, a, b);                                 \
    }                                                          \
  } while (0)

template <bool has_two>
inline void scores_of_groups(int64_t dim, const TileOperands& on, const uint16_t* keys, int64_t row, float* out, int64_t ldo) {
  constexpr int64_t kKeyBytes = 2 * kBlock * 2;
  const uint16_t *q = on.q + row * on.stride_q, *at = keys;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (has_two) {
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t* end = q + dim / 32 * 32;
  for (; q < end; q += 32, at += 32 * kBlock) OCTAVO_SCORES(4, 5);
  if (dim % 32) OCTAVO_SCORES(6, 7);
  _tile_stored(0, out, 4 * ldo);
  _tile_stored(1, out + 16, 4 * ldo);
  if constexpr (has_two) {
    _tile_stored(2, out + kGroupRows * ldo, 4 * ldo);
    _tile_stored(3, out + kGroupRows * ldo + 16, 4 * ldo);
  }
}
#undef OCTAVO_SCORES

// Scores of one block of keys for the groups that hold rows [begin, end); rows of scores are `ldo` apart.
inline void tile_products(int64_t dim, const TileOperands& on, const uint16_t* keys, int64_t begin, int64_t end, float* scores, int64_t ldo) {
  int64_t row = begin / kGroupRows * kGroupRows;
  for (; row + kGroupRows < end; row += 2 * kGroupRows) scores_of_groups<true>(dim, on, keys, row, scores + row * ldo, ldo);
  if (row < end) scores_of_groups<false>(dim, on, keys, row, scores + row * ldo, ldo);
}

inline void tile_scores(const Tile& tile, const TileOperands& on, const uint16_t* keys, int64_t column, int64_t begin, int64_t end) {
  tile_products(tile.head_dim, on, keys, begin, end, tile.scores + column, kScoreStride);
}

// Weights are bf16 at the start of the row: never beyond the scores that are still to be read.
struct WeightsInRow {
  static uint16_t* of(float* scores) { return reinterpret_cast<uint16_t*>(scores); }
  static void clear_unseen(const Row& row, BlockRange range, float* scores) {
    const int64_t before = row.low - range.first * kBlock, last = row.high - range.last * kBlock;
    const auto keep = [](uint16_t* block, __mmask32 seen) {  // in one store: tiles are loaded next
      _mm512_storeu_si512(block, _mm512_maskz_loadu_epi16(seen, block));
    };
    if (before > 0) keep(of(scores) + range.first * kBlock % kSegment, ~__mmask32{0} << before);
    if (last < kBlock - 1) keep(of(scores) + range.last * kBlock % kSegment, ~__mmask32{0} >> (kBlock - 1 - last));
  }
  template <class W, class KV>
  static void store(float* row, int64_t at, typename W::F e) {
    uint16_t* to = of(row) + at % kSegment;
    for (int i = 0; i < W::kLanes / 16; i += 2)
      _mm512_storeu_si512(to + 16 * i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(e.part[i + 1], e.part[i])));
  }
};

// +0 in the blocks of `all` that the row does not see.
inline void clear_blocks(uint16_t* weights, BlockRange seen, BlockRange all, int64_t base) {
  const auto clear = [&](int64_t first, int64_t end) {
    if (first < end) std::memset(weights + first * kBlock - base, 0, static_cast<size_t>(end - first) * kBlock * sizeof(uint16_t));
  };
  if (seen.first > seen.last) return clear(all.first, all.last + 1);
  clear(all.first, seen.first);
  clear(seen.last + 1, all.last + 1);
}

// 16 * `count` dimensions, from d on, of P.V of one group over blocks [range.first, range.last], whose value tiles are values[block - range.first].
template <int count>
inline void tile_values(const Tile& tile, int64_t row, int64_t d, BlockRange range, int64_t base, const uint16_t* const* values) {
  const int64_t value_bytes = 4 * tile.head_dim;
  const uint16_t* weights = WeightsInRow::of(tile.scores + row * kScoreStride) - base;
  _tile_zero(0);
  if constexpr (count > 1) _tile_zero(1);
  if constexpr (count > 2) _tile_zero(2);
  if constexpr (count > 3) _tile_zero(3);
  for (int64_t block = range.first; block <= range.last; ++block) {
    const uint16_t* v = values[block - range.first] + 2 * d;
    _tile_loadd(4, weights + block * kBlock, 4 * kScoreStride);
    _tile_loadd(5, v, value_bytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (count > 1) {
      _tile_loadd(5, v + 32, value_bytes);
      _tile_dpbf16ps(1, 4, 5);
    }
    if constexpr (count > 2) {
      _tile_loadd(5, v + 64, value_bytes);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (count > 3) {
      _tile_loadd(5, v + 96, value_bytes);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  float* out = tile.part + row * tile.head_dim + d;
  _tile_stored(0, out, 4 * tile.head_dim);
  if constexpr (count > 1) _tile_stored(1, out + 16, 4 * tile.head_dim);
  if constexpr (count > 2) _tile_stored(2, out + 32, 4 * tile.head_dim);
  if constexpr (count > 3) _tile_stored(3, out + 48, 4 * tile.head_dim);
}

inline void all_values(const Tile& tile, int64_t row, BlockRange range, int64_t base, const uint16_t* const* values) {
  int64_t d = 0;
  for (; d + 64 <= tile.head_dim; d += 64) tile_values<4>(tile, row, d, range, base, values);
  switch ((tile.head_dim - d) / 16) {
    case 1: return tile_values<1>(tile, row, d, range, base, values);
    case 2: return tile_values<2>(tile, row, d, range, base, values);
    case 3: return tile_values<3>(tile, row, d, range, base, values);
    default: return;
  }
}

// Heads of 32: two groups that see the same blocks side by side, so that four sums keep the multiplier busy.
inline void values_of_two(const Tile& tile, int64_t row, BlockRange range, int64_t base, const uint16_t* const* values) {
  constexpr int64_t kDim = 32, kValueBytes = 4 * kDim;
  const uint16_t* weights = WeightsInRow::of(tile.scores + row * kScoreStride) - base;
  const uint16_t* others = WeightsInRow::of(tile.scores + (row + kGroupRows) * kScoreStride) - base;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t block = range.first; block <= range.last; ++block) {
    const uint16_t* v = values[block - range.first];
    _tile_loadd(4, weights + block * kBlock, 4 * kScoreStride);
    _tile_loadd(5, v, kValueBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(5, v + 32, kValueBytes);
    _tile_dpbf16ps(1, 4, 5);
    _tile_loadd(4, others + block * kBlock, 4 * kScoreStride);
    _tile_dpbf16ps(3, 4, 5);
    _tile_loadd(5, v, kValueBytes);
    _tile_dpbf16ps(2, 4, 5);
  }
  float *out = tile.part + row * kDim, *next = out + kGroupRows * kDim;
  _tile_stored(0, out, 4 * kDim);
  _tile_stored(1, out + 16, 4 * kDim);
  _tile_stored(2, next, 4 * kDim);
  _tile_stored(3, next + 16, 4 * kDim);
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
  // Weights of the group of rows from `row` on; the blocks that it sees, none at all where first > last.
  const auto weigh = [&](int64_t row) -> BlockRange {
    const int64_t end = smaller(row + kGroupRows, tile.num_rows);
    if (tile.rows[end - 1].high < base || tile.rows[row].low >= base + kSegment) return {1, 0};
    const BlockRange all{larger(tile.rows[row].low, base) / kBlock, smaller(tile.rows[end - 1].high, base + kSegment - 1) / kBlock};
    for (int64_t r = row; r < end; ++r) {
      const BlockRange seen = visible_blocks(tile.rows[r], segment);
      float* scores = tile.scores + r * kScoreStride;
      if (seen.first <= seen.last) {
        const Asking asking(ahead.in_step(), kv.tile_bytes(), (seen.last - seen.first + 2) / 2);
        to_weights<V, KV, WeightsInRow>(rule, kv, tile.rows[r], seen, scores, asking);
      }
      clear_blocks(WeightsInRow::of(scores), seen, all, base);
    }
    return all;
  };
  const uint16_t* values[kSegment / kBlock];
  const auto find_values = [&](BlockRange all) {
    for (int64_t block = all.first; block <= all.last; ++block) values[block - all.first] = &kv.values(block, nullptr).at->bits;
    before_tiles();
  };
  const auto one = [&](int64_t row, BlockRange all) {
    if (all.first > all.last) return;
    find_values(all);
    all_values(tile, row, all, base, values);
  };
  int64_t row = 0;
  if (tile.head_dim == 32)
    for (; row + kGroupRows < tile.num_rows; row += 2 * kGroupRows) {
      const BlockRange all = weigh(row), other = weigh(row + kGroupRows);
      if (all.first != other.first || all.last != other.last || all.first > all.last) {
        one(row, all);
        one(row + kGroupRows, other);
      } else {
        find_values(all);
        values_of_two(tile, row, all, base, values);
      }
      before_tiles();
    }
  for (; row < tile.num_rows; row += kGroupRows) {
    one(row, weigh(row));
    before_tiles();
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
