// varlen_attention_bf16 at avx512bf16: two multiply-adds per instruction with the contract's bits (chains.inl.h).
#include "attention/segment_in_chains.inl.h"
#include "attention/varlen_units.inl.h"

namespace octavo::avx512bf16 {
namespace {

constexpr int64_t kFewRows = 10;  // below, turning keys and values takes longer than float32 products of them as they lie

}  // namespace

void varlen_attention_bf16(const void* raw, const Step& step, const Lane& lane) {
  const int64_t stride = quad_stride(static_cast<const VarlenAttentionArgs*>(raw)->head_dim);
  uint16_t* queries = nullptr;
  varlen_units<TilesKV>(
      raw, step, lane, 2 * kMaxRows * stride, [&](Scratch& scratch, int64_t rows) { queries = scratch.take<uint16_t>(rows * stride); },
      [&](const Tile& tile) { queries_to_quads(tile, queries); },
      [&](Tile& tile, TilesKV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        if (tile.num_rows < kFewRows)
          attend_segment<V>(tile, kv, rule, segment, ahead);
        else
          attend_segment_in_chains(tile, queries, kv, rule, segment, ahead);
      });
}

}  // namespace octavo::avx512bf16
