// Packed sequences of encoders, for attention on matrix units: their rows, and where their keys and values are.
#pragma once

#include "gpu/attention_mma_cuts.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// A packed sequence's rows of one kv head: a position sees low .. high.
struct PackedRows : AttentionRows<VarlenAttentionArgs> {
  static constexpr bool kHasSinks = false;
  int32_t last;
  OCTAVO_GPU_FN int32_t low(int32_t position) const {
    const auto window = static_cast<int32_t>(a.window);
    return window > 0 && position > window ? position - window : 0;
  }
  OCTAVO_GPU_FN int32_t high(int32_t position) const {
    const auto window = static_cast<int32_t>(a.window);
    const int32_t furthest = a.causal ? position : window > 0 ? position + window : last;
    return position < 0 ? -1 : furthest < last ? furthest : last;
  }
  OCTAVO_GPU_FN int32_t distance(int32_t position, int32_t key) const { return position < key ? key - position : position - key; }
  OCTAVO_GPU_FN float softcap() const { return 0.0f; }
};

// Tiles of the positions [from, to] that any row of a block sees; what is beyond them is read of the nearest.
struct PackedTiles {
  int32_t from = 0, to = 0, begin = 0;
  OCTAVO_GPU_FN void start(int32_t, int32_t from_, int32_t to_) { from = from_, to = to_; }
  OCTAVO_GPU_FN void next(int32_t tile, int32_t) { begin = opaque_uniform(tile * kKeys); }
  static OCTAVO_GPU_FN uint32_t nearest(int32_t position, int32_t from, int32_t to) {
    return static_cast<uint32_t>(position < from ? from : position > to ? to : position);
  }
};

// A block's share of a packed sequence: rows of one kv head from `first_row` on; as many as there are (`count`, none if below 1), at
// most kRows.
struct PackedWork {
  PackedRows rows;
  int32_t kv_head, first_row, count;
};
template <int kRows>
OCTAVO_GPU_FN bool has_packed_work(const Step& step, const VarlenAttentionArgs& a) {
  return block_x() < units_before(step, static_cast<int32_t>(step.num_seqs), static_cast<int32_t>(a.heads / a.kv_heads), kRows);
}
template <int kRows>
OCTAVO_GPU_FN PackedWork packed_work_of(const Step& step, const VarlenAttentionArgs& a) {
  const auto group = static_cast<int32_t>(a.heads / a.kv_heads);
  const int32_t seq = seq_of(step, block_x(), group, kRows), kv_head = block_y();
  const int32_t token = load_uniform(step.query_start + seq), tokens = load_uniform(step.query_start + seq + 1) - token;
  const int32_t first_row = (block_x() - units_before(step, seq, group, kRows)) * kRows, left = tokens * group - first_row;
  return {{{a, token, kv_head * group, group, tokens * group, 0}, tokens - 1}, kv_head, first_row, left < kRows ? left : kRows};
}

}  // namespace octavo::gpu

#endif
