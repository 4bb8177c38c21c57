// relative_attention_bf16 at amx: all products on tiles (amx.inl.h), the rest as at every level (relative_units.inl.h).
#include "attention/amx.inl.h"
#include "attention/relative_units.inl.h"

namespace octavo::amx {
namespace {

constexpr int64_t kMostTileDim = 128;  // of heads whose table's tiles find room in scratch beside the keys'

// Rows of rel_k are tiles like keys; those of rel_q are rounded for each block of keys.
class TileProducts {
 public:
  static int64_t scratch_bytes(int64_t dim) { return TilesKV::scratch_bytes(dim) + 2 * (kBlockDistances + kMaxRows) * dim; }
  explicit TileProducts(int64_t dim) : dim_(dim), table_(dim) {}
  void take(Scratch& scratch) {
    table_.take(scratch);
    queries_.stride_q = rows_.stride_q = dim_;
    queries_.q = scratch.take<uint16_t>(kMaxRows * dim_);
    rows_.q = scratch.take<uint16_t>(kBlockDistances * dim_);
  }
  void begin(const float* table, int64_t dim, int64_t num_rows) { table_.begin(table, dim, nullptr, 0, num_rows); }
  void tile(const Tile& tile) { narrow_queries(tile, queries_); }
  void of_queries(const Tile& tile, int64_t block, float* out) {
    const uint16_t* keys = &table_.key_tile(block)->bits;
    before_tiles();
    tile_products(dim_, queries_, keys, 0, tile.num_rows, out, kContentStride);
    before_tiles();
  }
  void of_keys(TilesKV& kv, int64_t block, const float* from, int64_t, int64_t count, float* out) {
    for (int64_t i = 0; i < count * dim_; i += V::kLanes) V::store_bf16(rows_.q + i, round_bf16<V>(V::load(from + i)));
    const uint16_t* keys = &kv.key_tile(block)->bits;
    before_tiles();
    tile_products(dim_, rows_, keys, 0, count, out, kBlock);
    before_tiles();
  }

 private:
  const int64_t dim_;
  TileOperands queries_, rows_;
  TilesKV table_;
};

}  // namespace

void relative_attention_bf16(const void* raw, const Step& step, const Lane& lane) {
  const int64_t dim = static_cast<const RelativeAttentionArgs*>(raw)->head_dim;
  if (dim % kGroupRows != 0 || dim > kMostTileDim) return relative_attention_of<TilesKV>(raw, step, lane);
  TileOperands on;
  on.stride_q = dim;
  const TileConfig config = attention_config(dim % 32);
  load_config(config);
  relative_units<TileProducts, TilesKV>(
      raw, step, lane, 2 * kMaxRows * dim, [&](Scratch& scratch, int64_t rows) { on.q = scratch.take<uint16_t>(rows * dim); },
      [&](const Tile& tile) {
        if (tile.num_rows >= kFewTileRows) narrow_queries(tile, on);
      },
      [&](Tile& tile, TilesKV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        if (tile.num_rows >= kFewTileRows)
          attend_segment_on_tiles<V>(tile, on, kv, rule, segment, ahead);
        else
          attend_segment<V>(tile, kv, rule, segment, ahead);
      });
  _tile_release();
}

}  // namespace octavo::amx
