// Causal attention over KV pages, segment by segment by attend_segment. Arithmetic: platforms/ops.py; layout of a page:
// contract/attention.h. Milakov & Gimelshein 2018; Dao et al. 2022, 2023; Kwon et al. 2023.
#pragma once
#include "attention/paged_units.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <class T, bool rounds, bool scaled>
void paged_attention(const void* raw, const Step& step, const Lane& lane) {
  using KV = PagedKV<T, rounds, scaled>;
  const auto& a = *static_cast<const PagedAttentionArgs*>(raw);
  const int64_t tail_elements = kBlock * a.head_dim;
  const int64_t rows = max_rows(lane, a.head_dim, tail_elements * static_cast<int64_t>(sizeof(T)));
  const ScoreRule rule{a.scale, a.softcap, a.alibi != nullptr, false};
  Scratch scratch(lane);
  Tile tile = take_tile(scratch, rows, a.head_dim);
  T* tail = scratch.take<T>(tail_elements);
  run_units<KV>(
      a, step, lane, TileShape::of(a.heads, a.kv_heads, rows), tile, tail, [](const Tile&) {},
      [&](Tile& t, KV& kv, int64_t segment, ReadAhead<KV>& ahead) { attend_segment<V>(t, kv, rule, segment, ahead); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
