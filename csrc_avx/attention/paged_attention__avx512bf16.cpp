// paged_attention_{bf16,int8,fp8} at avx512bf16: two multiply-adds per instruction with the contract's bits (chains.inl.h).
#include "attention/paged_units.inl.h"
#include "attention/segment_in_chains.inl.h"

namespace octavo::avx512bf16 {
namespace {

// Below so many rows (with codes: kFewCodeRows), turning keys and values takes longer than float32 products of them as they lie.
constexpr int64_t kFewRows = 10, kFewCodeRows = 6;

template <class T, bool scaled>
void paged_attention(const void* raw, const Step& step, const Lane& lane) {
  using KV = PagedKV<T, true, scaled>;
  const auto& a = *static_cast<const PagedAttentionArgs*>(raw);
  const int64_t tail_elements = kBlock * a.head_dim, stride = quad_stride(a.head_dim);
  const int64_t rows = max_rows(lane, a.head_dim, tail_elements * static_cast<int64_t>(sizeof(T)) + 2 * kMaxRows * stride);
  const ScoreRule rule{a.scale, a.softcap, a.alibi != nullptr, false};
  Scratch scratch(lane);
  Tile tile = take_tile(scratch, rows, a.head_dim);
  T* tail = scratch.take<T>(tail_elements);
  auto* queries = scratch.take<uint16_t>(rows * stride);
  run_units<KV>(
      a, step, lane, TileShape::of(a.heads, a.kv_heads, rows), tile, tail, [&](const Tile& t) { queries_to_quads(t, queries); },
      [&](Tile& t, KV& kv, int64_t segment, ReadAhead<KV>& ahead) {
        if (t.num_rows < (scaled ? kFewCodeRows : kFewRows))
          attend_segment<V>(t, kv, rule, segment, ahead);
        else
          attend_segment_in_chains(t, queries, kv, rule, segment, ahead);
      });
}

}  // namespace

void paged_attention_bf16(const void* a, const Step& s, const Lane& l) { paged_attention<BF16, false>(a, s, l); }
void paged_attention_int8(const void* a, const Step& s, const Lane& l) { paged_attention<int8_t, true>(a, s, l); }
void paged_attention_fp8(const void* a, const Step& s, const Lane& l) { paged_attention<E4M3, true>(a, s, l); }

}  // namespace octavo::avx512bf16
