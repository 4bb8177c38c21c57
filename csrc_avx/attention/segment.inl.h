// Softmax attention of a tile of query rows over one segment of 512 absolute positions, and the fold of segments.
//
// Arithmetic: platforms/ops.py, paged_attention. All scores of the segment come first, then one maximum per row, then
// exponentials, their sum in 16 lanes by position, then P.V by blocks of 32 positions. Rows are in ascending query position,
// so the rows that see a block are a contiguous range; no row ever touches a block it does not see.
#pragma once
#include "attention/dot32.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kSegment = 512;
constexpr int64_t kBlock = 32;
constexpr int64_t kScoreStride = kSegment + 16;  // keeps the rows of a tile out of each other's cache sets

// One query head of one query token.
struct Row {
  int64_t low, high;  // visible positions, inclusive
  int64_t position;
  float alibi;        // slope
  float max, sum;     // of the segments folded so far
  float segment_max, segment_sum;
  bool has_segment;
};

struct Tile {
  int64_t num_rows;
  int64_t head_dim;
  Row* rows;
  float* q;       // [num_rows][head_dim]
  float* scores;  // [num_rows][kScoreStride], then the weights
  float* part;    // [num_rows][head_dim], P.V of the segment
  float* out;     // [num_rows][head_dim], folded
};

struct ScoreRule {
  float scale;
  float softcap;    // 0 = off
  bool has_alibi;
  bool is_two_sided;  // alibi by -|i - j| instead of j - i
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The blocks (in units of 32 positions) of segment `segment` that row r sees; empty if first > last.
struct BlockRange {
  int64_t first, last;
};
inline BlockRange visible_blocks(const Row& row, int64_t segment) {
  const int64_t begin = segment * kSegment, end = begin + kSegment - 1;
  if (row.low > end || row.high < begin) return {1, 0};
  return {larger(row.low, begin) / kBlock, smaller(row.high, end) / kBlock};
}

// Calls body(block, row_begin, row_end) for every block of the segment that some row sees.
template <class Body>
void for_blocks(const Tile& tile, int64_t segment, Body body) {
  const int64_t begin = segment * kSegment;
  const int64_t low = larger(tile.rows[0].low, begin), high = smaller(tile.rows[tile.num_rows - 1].high, begin + kSegment - 1);
  int64_t row_begin = 0, row_end = 0;
  for (int64_t block = low / kBlock; block * kBlock <= high; ++block) {
    while (row_begin < tile.num_rows && tile.rows[row_begin].high < block * kBlock) ++row_begin;
    while (row_end < tile.num_rows && tile.rows[row_end].low < (block + 1) * kBlock) ++row_end;
    if (row_begin < row_end) body(block, row_begin, row_end);
  }
}

// float32 rounded to bf16 (scalar.h bf16_of), kept as float32.
template <class V>
inline typename V::F round_bf16(typename V::F x) {
  const auto u = V::bits(x);
  const auto odd = V::iand(V::template shr<16>(u), V::ibroadcast(1));
  const auto up = V::iadd(u, V::iadd(odd, V::ibroadcast(0x7FFF)));
  const auto rounded = V::from_bits(V::iand(up, V::ibroadcast(static_cast<int32_t>(0xFFFF0000u))));
  const auto zero = V::from_bits(V::iand(u, V::ibroadcast(INT32_MIN)));
  const auto y = V::select(V::lt(V::abs(x), V::broadcast(0x1p-126f)), zero, rounded);
  return V::select(V::eq(x, x), y, x);
}

alignas(64) inline constexpr float kCount[kBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Products to scores, in place, invisible ones to -inf; returns their maximum.
template <class V, class KV>
__attribute__((flatten)) float finish_scores(const ScoreRule& rule, const KV& kv, const Row& row, BlockRange range, float* scores) {
  using F = typename V::F;
  const F scale = V::broadcast(rule.scale), cap = V::broadcast(rule.softcap), slope = V::broadcast(row.alibi);
  F best = V::broadcast(-__builtin_inff());
  for (int64_t block = range.first; block <= range.last; ++block) {
    const int64_t start = block * kBlock;
    float* s = scores + start % kSegment;
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      F x = V::load(s + i);
      if constexpr (KV::kIsScaled) x = V::mul(x, V::load(kv.k_scales(block) + i));
      x = V::mul(x, scale);
      if (rule.softcap != 0.0f) x = V::mul(cap, vec::tanh<V>(V::div(x, cap)));
      if (rule.has_alibi) {
        F distance = V::add(V::load(kCount + i), V::broadcast(static_cast<float>(start - row.position)));
        if (rule.is_two_sided) distance = V::neg(V::abs(distance));
        x = V::add(x, V::mul(slope, distance));
      }
      V::store(s + i, x);
    }
    for (int64_t i = 0; i < row.low - start; ++i) s[i] = -__builtin_inff();
    for (int64_t i = kBlock - 1; i > row.high - start; --i) s[i] = -__builtin_inff();
    for (int64_t i = 0; i < kBlock; i += V::kLanes) best = V::max(best, V::load(s + i));
  }
  float lanes[V::kLanes];
  V::store(lanes, best);
  float m = lanes[0];
  for (int i = 1; i < V::kLanes; ++i) m = m > lanes[i] ? m : lanes[i];
  return m;
}

// Scores to weights, in place; returns the sum of the exponentials.
template <class V, class KV>
__attribute__((flatten)) float weigh(const KV& kv, const Row& row, BlockRange range, float* scores) {
  using F = typename V::F;
  const F m = V::broadcast(row.segment_max);
  vec::Lanes16<V> sum;
  for (int64_t block = range.first; block <= range.last; ++block) {
    const int64_t start = block * kBlock;
    float* s = scores + start % kSegment;
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      F e = vec::exp<V>(V::sub(V::load(s + i), m));
      F& lane = sum.part[i % 16 / V::kLanes];
      lane = V::add(lane, e);
      if constexpr (KV::kIsScaled) e = V::mul(e, V::load(kv.v_scales(block) + i));
      if constexpr (KV::kRoundsWeights) e = round_bf16<V>(e);
      V::store(s + i, e);
    }
    for (int64_t i = 0; i < row.low - start && i < kBlock; ++i) s[i] = 0.0f;
    for (int64_t i = kBlock - 1; i > row.high - start && i >= 0; --i) s[i] = 0.0f;
  }
  return sum.fold();
}

// One segment for all rows: segment_max, segment_sum and part of every row that sees some of it.
template <class V, class KV>
void attend_segment(Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment) {
  const int64_t dim = tile.head_dim, base = segment * kSegment;
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const auto keys = kv.keys(block);
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
    float* scores = tile.scores + r * kScoreStride;
    row.segment_max = finish_scores<V>(rule, kv, row, range, scores);
    row.segment_sum = weigh<V>(kv, row, range, scores);
  }
  std::memset(tile.part, 0, static_cast<size_t>(tile.num_rows * dim) * sizeof(float));
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const RowBlock rows{tile.scores + block * kBlock - base, kScoreStride, tile.part, dim, kBlockPairs, false};
    dot32_block<V>(rows, kv.values(block), begin, end, dim);
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
