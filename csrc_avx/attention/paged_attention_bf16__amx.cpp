// paged_attention_bf16 at amx: Q.K^T and P.V on tiles (amx.inl.h), the rest as at every level (paged_attention.inl.h).
#include "attention/amx.inl.h"
#include "attention/paged_units.inl.h"

namespace octavo::amx {
namespace {

using KV = PagedKV<BF16, true, false>;

}  // namespace

void paged_attention_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const PagedAttentionArgs*>(raw);
  const int64_t tail_elements = kBlock * a.head_dim;
  const int64_t operand_bytes = kMaxRows * 2 * a.head_dim;
  const int64_t rows = max_rows(lane, a.head_dim, 2 * tail_elements + operand_bytes);
  const bool can_tile = a.head_dim % kGroupRows == 0 && rows >= kGroupRows;
  const int64_t tile_rows = can_tile ? rows / kGroupRows * kGroupRows : rows;
  const ScoreRule rule{a.scale, a.softcap, a.alibi != nullptr, false};
  Scratch scratch(lane);
  Tile tile = take_tile(scratch, tile_rows, a.head_dim);
  auto* tail = scratch.take<BF16>(tail_elements);
  TileOperands on;
  on.stride_q = a.head_dim;
  on.q = scratch.take<uint16_t>(groups_of(tile_rows) * kGroupRows * a.head_dim);
  const TileConfig config = attention_config(can_tile ? a.head_dim % 32 : 0);
  load_config(config);
  run_units<KV>(
      a, step, lane, TileShape::of(a.heads, a.kv_heads, tile_rows), tile, tail,
      [&](const Tile& t) {
        if (can_tile && t.num_rows >= kFewTileRows) narrow_queries(t, on);
      },
      [&](Tile& t, KV& kv, int64_t segment, ReadAhead<KV>& ahead) {
        if (can_tile && t.num_rows >= kFewTileRows)
          attend_segment_on_tiles<V>(t, on, kv, rule, segment, ahead);
        else
          attend_segment<V>(t, kv, rule, segment, ahead);
      });
  _tile_release();
}

}  // namespace octavo::amx
