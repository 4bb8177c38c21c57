// Softmax attention of a tile of query rows over one segment of 512 absolute positions, and the fold of segments.
//
// Arithmetic: platforms/ops.py, paged_attention. All scores of the segment come first, then one maximum per row, then
// exponentials, their sum in 16 lanes by position, then P.V by blocks of 32 positions. Rows are in ascending query position,
// so the rows that see a block are a contiguous range; no row ever touches a block it does not see.
#pragma once
#include "attention/dot32.inl.h"
#include "attention/softmax.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// One segment for all rows: segment_max, segment_sum and part of every row that sees some of it.
template <class V, class KV, class Ahead>
void attend_segment(Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment, Ahead& ahead) {
  const int64_t dim = tile.head_dim, base = segment * kSegment;
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const auto keys = kv.keys(block, ahead.in_step());
    for (int64_t d = 0; d < dim; d += 2 * kBlockPairs) {
      const RowBlock rows{tile.q + d, dim, tile.scores + block * kBlock - base, kScoreStride,
                          smaller(kBlockPairs, (dim - d) / 2), d == 0};
      dot32_block<V>(rows, KV::from_pair(keys, d / 2), begin, end, kBlock);
    }
  });
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    Row& row = tile.rows[r];
    const BlockRange range = visible_blocks(row, segment);
    if (range.first > range.last) continue;
    const Asking asking(ahead.extra(), kv.tile_bytes(), (range.last - range.first + 2) / 2);
    to_weights<V>(rule, kv, row, range, tile.scores + r * kScoreStride, asking);
  }
  std::memset(tile.part, 0, static_cast<size_t>(tile.num_rows * dim) * sizeof(float));
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const RowBlock rows{tile.scores + block * kBlock - base, kScoreStride, tile.part, dim, kBlockPairs, false};
    dot32_block<V>(rows, kv.values(block, ahead.in_step()), begin, end, dim);
  });
}

inline float exp_of(float x) { return vec::exp<vec::F32x1>(x); }

// acc = fma(acc, exp(M - M'), part * exp(m - M')), the sums likewise; a first segment is taken as it is.
inline void fold_row(Row& row, const float* part, float* out, int64_t dim) {
  if (!row.has_segment) {
    std::memcpy(out, part, static_cast<size_t>(dim) * sizeof(float));
    row.max = row.segment_max;
    row.sum = row.segment_sum;
    row.has_segment = true;
    return;
  }
  const float m = vec::F32x1::max(row.max, row.segment_max);
  const float a = exp_of(row.max - m), b = exp_of(row.segment_max - m);
  for (int64_t d = 0; d < dim; ++d) out[d] = vec::fma_scalar(out[d], a, part[d] * b);
  row.sum = vec::fma_scalar(row.sum, a, row.segment_sum * b);
  row.max = m;
}

// A sink is one more logit without a value; joins after the last segment.
inline void add_sink(Row& row, float sink, float* out, int64_t dim) {
  const float m = vec::F32x1::max(row.max, sink);
  const float a = exp_of(row.max - m);
  for (int64_t d = 0; d < dim; ++d) out[d] = out[d] * a;
  row.sum = vec::fma_scalar(row.sum, a, exp_of(sink - m));
  row.max = m;
}

// All segments in order; `segment_step(segment)` is attend_segment in the level's own way.
template <class SegmentStep>
void attend(Tile& tile, SegmentStep segment_step) {
  const int64_t first = tile.rows[0].low / kSegment, last = tile.rows[tile.num_rows - 1].high / kSegment;
  for (int64_t segment = first; segment <= last; ++segment) {
    segment_step(segment);
    for (int64_t r = 0; r < tile.num_rows; ++r) {
      const BlockRange range = visible_blocks(tile.rows[r], segment);
      if (range.first <= range.last)
        fold_row(tile.rows[r], tile.part + r * tile.head_dim, tile.out + r * tile.head_dim, tile.head_dim);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
