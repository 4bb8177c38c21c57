// A segment of attention by VDPBF16PS (chains.inl.h), for KV dtypes whose queries and weights are bf16 values.
//
// Queries lie in quads beside the tile; the weights of a row take the place of its scores, as quads of half the size.
#pragma once
#include "attention/chains.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Room of a row's queries: whole blocks of 32 values, the last one filled up with zeros.
inline int64_t quad_stride(int64_t head_dim) { return (head_dim + kBlock - 1) / kBlock * kBlock; }

inline void queries_to_quads(const Tile& tile, uint16_t* to) {
  for (int64_t r = 0; r < tile.num_rows; ++r, to += quad_stride(tile.head_dim))
    for (int64_t d = 0; d < tile.head_dim; d += kBlock) {
      const float* q = tile.q + r * tile.head_dim + d;
      const int64_t left = tile.head_dim - d;
      const V::F low = left >= 16 ? V::load(q) : V::load_n(q, static_cast<int>(left));
      const V::F high = left >= kBlock ? V::load(q + 16) : left > 16 ? V::load_n(q + 16, static_cast<int>(left - 16)) : V::zero();
      _mm512_storeu_si512(to + d, quads_of(low, high));
    }
}

// Weights are quads at the start of the row: never beyond the scores that are still to be read.
struct WeightsInQuads {
  static void clear_unseen(const Row& row, BlockRange range, float* scores) {
    auto* quads = reinterpret_cast<uint16_t*>(scores);
    const auto clear = [&](int64_t block, int64_t t) {
      constexpr int64_t kPlace[4] = {1, 3, 0, 2};
      quads[block * kBlock % kSegment + t / 4 * 4 + kPlace[t % 4]] = 0;
    };
    for (int64_t t = 0; t < row.low - range.first * kBlock; ++t) clear(range.first, t);
    for (int64_t t = kBlock - 1; t > row.high - range.last * kBlock; --t) clear(range.last, t);
  }
  template <class W, class KV>
  static void store(float* row, int64_t at, typename W::F e) {
    auto* to = reinterpret_cast<uint16_t*>(row) + at % kSegment;
    for (int i = 0; i < W::kLanes / 16; i += 2) _mm512_storeu_si512(to + 16 * i, quads_of(e.part[i], e.part[i + 1]));
  }
};

// attend_segment by VDPBF16PS; `queries` as queries_to_quads leaves them.
template <class KV, class Ahead>
void attend_segment_in_chains(Tile& tile, const uint16_t* queries, KV& kv, const ScoreRule& rule, int64_t segment, Ahead& ahead) {
  const int64_t dim = tile.head_dim, base = segment * kSegment, stride = quad_stride(dim);
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    chains_keys(queries, stride, kv.keys(block, ahead.in_step()), dim, tile.scores + block * kBlock - base, begin, end);
  });
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    Row& row = tile.rows[r];
    const BlockRange range = visible_blocks(row, segment);
    if (range.first > range.last) continue;
    const Asking asking(ahead.extra(), kv.tile_bytes(), (range.last - range.first + 2) / 2);
    to_weights<V, KV, WeightsInQuads>(rule, kv, row, range, tile.scores + r * kScoreStride, asking);
  }
  std::memset(tile.part, 0, static_cast<size_t>(tile.num_rows * dim) * sizeof(float));
  const auto* weights = reinterpret_cast<const uint16_t*>(tile.scores);
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const ChainBlock rows{weights + block * kBlock - base, 2 * kScoreStride, tile.part, dim, kBlockPairs, false};
    chains_values(rows, kv.values(block, ahead.in_step()), begin, end, dim);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
