// varlen_attention_bf16 at amx: Q.K^T and P.V on tiles (amx.inl.h), the rest as at every level (varlen_units.inl.h).
#include "attention/amx.inl.h"
#include "attention/varlen_units.inl.h"

namespace octavo::amx {

void varlen_attention_bf16(const void* raw, const Step& step, const Lane& lane) {
  const int64_t dim = static_cast<const VarlenAttentionArgs*>(raw)->head_dim;
  bool can_tile = dim % kGroupRows == 0 && dim <= TilesKV::kMaxDim;
  TileOperands on;
  on.stride_q = dim;
  const TileConfig config = attention_config(can_tile ? dim % 32 : 0);
  load_config(config);
  varlen_units<TilesKV>(
      raw, step, lane, 2 * kMaxRows * dim,
      [&](Scratch& scratch, int64_t rows) {
        can_tile = can_tile && rows % kGroupRows == 0;
        on.q = scratch.take<uint16_t>(rows * dim);
      },
      [&](const Tile& tile) {
        if (can_tile && tile.num_rows >= kFewTileRows) narrow_queries(tile, on);
      },
      [&](Tile& tile, TilesKV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        if (can_tile && tile.num_rows >= kFewTileRows)
          attend_segment_on_tiles<V>(tile, on, kv, rule, segment, ahead);
        else
          attend_segment<V>(tile, kv, rule, segment, ahead);
      });
  _tile_release();
}

}  // namespace octavo::amx
