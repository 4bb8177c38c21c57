// Rows and keys of paged attention: a tile's query rows in and out, and a kv head's pages as pair rows.
//
// V beyond the sequence's length reads as +0 whatever the memory holds. Pages below every row's window are never touched (their
// table entries may be the null page).
#pragma once
#include "attention/pages.h"
#include "attention/scratch.inl.h"
#include "attention/units.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

template <class T, bool rounds, bool scaled>
struct PagedKV {
  using Element = T;
  static constexpr bool kRoundsWeights = rounds;  // queries too
  static constexpr bool kIsScaled = scaled;
  const HeadPages& pages;
  int64_t kv_len;
  T* tail;  // one tile of scratch

  const T* key_tile(int64_t block) const { return reinterpret_cast<const T*>(pages.k_tile(block * kBlock)); }
  const T* value_tile(int64_t block) const { return reinterpret_cast<const T*>(pages.v_tile(block * kBlock)); }
  int64_t tile_bytes() const { return pages.tile_bytes(); }

  // `ahead`: a tile that will be read soon, or null.
  Packed<T> keys(int64_t block, const void* ahead) const { return {key_tile(block), 2 * kBlock, static_cast<const T*>(ahead)}; }
  static Packed<T> from_pair(const Packed<T>& keys, int64_t pair) {
    const int64_t offset = pair * keys.stride;
    return {keys.at + offset, keys.stride, keys.ahead ? keys.ahead + offset : nullptr};
  }
  Packed<T> values(int64_t block, const void* next) const {
    const T *tile = value_tile(block), *ahead = static_cast<const T*>(next);
    const int64_t stride = 2 * pages.head_dim, valid = kv_len - block * kBlock;
    if (valid >= kBlock) return {tile, stride, ahead};
    std::memset(static_cast<void*>(tail), 0, static_cast<size_t>(kBlockPairs * stride) * sizeof(T));
    std::memcpy(static_cast<void*>(tail), tile, static_cast<size_t>(valid / 2 * stride) * sizeof(T));
    if (valid % 2)
      for (int64_t d = 0, at = valid / 2 * stride; d < pages.head_dim; ++d) tail[at + 2 * d] = tile[at + 2 * d];
    return {tail, stride, ahead};
  }
  const float* k_scales(int64_t block) const { return pages.k_scales(block * kBlock); }
  const float* v_scales(int64_t block) const { return pages.v_scales(block * kBlock); }
  void ask_for_scales(int64_t block) const {
    if constexpr (scaled)
      for (int64_t i = 0; i < kBlock; i += 16) {
        __builtin_prefetch(k_scales(block) + i, 0, 2);
        __builtin_prefetch(v_scales(block) + i, 0, 2);
      }
  }
};

template <class KV>
void load_rows(const PagedAttentionArgs& a, const Step& step, const TileShape& shape, const Unit& unit, Tile& tile) {
  const int64_t group = a.heads / a.kv_heads, first_head = unit.part * shape.heads_per_part;
  const int64_t heads = smaller(shape.heads_per_part, group - first_head);
  tile.num_rows = unit.num_tokens * heads;
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    const int64_t token = unit.first_token + r / heads, head = unit.kv_head * group + first_head + r % heads;
    Row& row = tile.rows[r];
    row.position = step.kv_len[unit.seq] - (step.query_start[unit.seq + 1] - token);
    row.high = row.position;
    row.low = a.window > 0 ? larger(0, row.position - a.window + 1) : 0;
    row.alibi = a.alibi ? a.alibi[head] : 0.0f;
    row.has_segment = false;
    load_query<V, KV::kRoundsWeights>(a.q + token * a.ldq + head * a.head_dim, tile.q + r * a.head_dim, a.head_dim);
  }
}

void store_rows(const PagedAttentionArgs& a, const TileShape& shape, const Unit& unit, Tile& tile) {
  const int64_t group = a.heads / a.kv_heads, first_head = unit.part * shape.heads_per_part;
  const int64_t heads = smaller(shape.heads_per_part, group - first_head);
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    const int64_t token = unit.first_token + r / heads, head = unit.kv_head * group + first_head + r % heads;
    float* out = tile.out + r * a.head_dim;
    if (a.sinks) add_sink(tile.rows[r], a.sinks[head], out, a.head_dim);
    float* y = a.y + token * a.ldy + head * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; ++d) y[d] = out[d] / tile.rows[r].sum;
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
