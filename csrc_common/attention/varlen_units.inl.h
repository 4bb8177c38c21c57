// varlen_attention: bidirectional attention inside each packed sequence, float32 keys and values straight from the
// activations. Positions count from the sequence's start; window w > 0 lets i see |i - j| <= w.
//
// Keys are turned into pair rows block by block in scratch; values are read in place, but for the last block of a sequence,
// which is copied so that what follows the sequence reads as +0. Each level has its own way over a segment.
#pragma once
#include "attention/read_ahead.inl.h"
#include "attention/scratch.inl.h"
#include "attention/turn_rows.inl.h"
#include "attention/units.inl.h"
#include "contract/attention.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

struct RowsKV {
  static constexpr bool kRoundsWeights = false;
  static constexpr bool kIsScaled = false;
  const float* k;
  int64_t ldk;
  const float* v;
  int64_t ldv;
  int64_t length;  // of the sequence
  int64_t dim;
  float* packed;  // [dim][32]
  float* tail;    // [32][dim]

  // [dim / 2][even, odd][32 tokens]; tokens beyond the end are zero.
  Planes keys(int64_t block, const void*) const {
    const int64_t valid = smaller(kBlock, length - block * kBlock);
    int64_t t = 0;
    for (; t + 8 <= valid; t += 8) turn_rows(k + (block * kBlock + t) * ldk, ldk, dim, packed + t, kBlock);
    for (; t < kBlock; ++t) {
      const float* row = k + (block * kBlock + t) * ldk;
      if (t < valid)
        for (int64_t d = 0; d < dim; ++d) packed[d * kBlock + t] = row[d];
      else
        for (int64_t d = 0; d < dim; ++d) packed[d * kBlock + t] = 0.0f;
    }
    return {packed, packed + kBlock, 2 * kBlock};
  }
  static Planes from_pair(const Planes& keys, int64_t pair) {
    return {keys.even + pair * keys.stride, keys.odd + pair * keys.stride, keys.stride};
  }
  Planes values(int64_t block, const void*) const {
    const float* rows = v + block * kBlock * ldv;
    const int64_t valid = length - block * kBlock;
    if (valid >= kBlock) return {rows, rows + ldv, 2 * ldv};
    std::memset(tail, 0, static_cast<size_t>(kBlock * dim) * sizeof(float));
    for (int64_t t = 0; t < valid; ++t) std::memcpy(tail + t * dim, rows + t * ldv, static_cast<size_t>(dim) * sizeof(float));
    return {tail, tail + dim, 2 * dim};
  }
  int64_t tile_bytes() const { return 0; }
  const float* k_scales(int64_t) const { return nullptr; }
  const float* v_scales(int64_t) const { return nullptr; }
};

// `segment_step(tile, kv, rule, segment, ahead)` is attend_segment in the level's own way.
template <class SegmentStep>
void varlen_units(const void* raw, const Step& step, const Lane& lane, SegmentStep segment_step) {
  const auto& a = *static_cast<const VarlenAttentionArgs*>(raw);
  const int64_t dim = a.head_dim, group = a.heads / a.kv_heads;
  const int64_t block_floats = kBlock * dim;
  const int64_t max = max_rows(lane, dim, 2 * block_floats * static_cast<int64_t>(sizeof(float)));
  const TileShape shape = TileShape::of(a.heads, a.kv_heads, max);
  const ScoreRule rule{a.scale, 0.0f, a.alibi != nullptr, true};
  Scratch scratch(lane);
  Tile tile = take_tile(scratch, max, dim);
  float* packed = scratch.take<float>(block_floats);
  float* tail = scratch.take<float>(block_floats);
  Units units(step, shape, SplitRule{});
  NoAhead no_ahead;
  const int64_t total = units.total();
  for (int64_t begin, end; lane.claim_in_order(total, 1, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const Unit unit = units.at(u, end);
      const int64_t first = step.query_start[unit.seq], length = step.query_start[unit.seq + 1] - first;
      const int64_t head0 = unit.kv_head * group + unit.part * shape.heads_per_part;
      const int64_t heads = smaller(shape.heads_per_part, (unit.kv_head + 1) * group - head0);
      tile.num_rows = unit.num_tokens * heads;
      for (int64_t r = 0; r < tile.num_rows; ++r) {
        const int64_t token = unit.first_token + r / heads, head = head0 + r % heads;
        Row& row = tile.rows[r];
        row.position = token - first;
        row.low = a.window > 0 ? larger(0, row.position - a.window) : 0;
        row.high = a.window > 0 ? smaller(length - 1, row.position + a.window) : length - 1;
        row.alibi = a.alibi ? a.alibi[head] : 0.0f;
        row.has_segment = false;
        std::memcpy(tile.q + r * dim, a.q + token * a.ldq + head * dim, static_cast<size_t>(dim) * sizeof(float));
      }
      RowsKV kv{a.k + first * a.ldk + unit.kv_head * dim, a.ldk, a.v + first * a.ldv + unit.kv_head * dim, a.ldv, length, dim,
                packed, tail};
      attend(tile, [&](int64_t segment) { segment_step(tile, kv, rule, segment, no_ahead); });
      for (int64_t r = 0; r < tile.num_rows; ++r) {
        const int64_t token = unit.first_token + r / heads, head = head0 + r % heads;
        const float* out = tile.out + r * dim;
        float* y = a.y + token * a.ldy + head * dim;
        for (int64_t d = 0; d < dim; ++d) y[d] = out[d] / tile.rows[r].sum;
      }
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
