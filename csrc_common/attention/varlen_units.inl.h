// Runs the units of varlen_attention: attention inside each packed sequence, keys and values straight from the activations.
// Positions count from the sequence's start; window w > 0 lets i see |i - j| <= w, and where it is causal j <= i. Keys are a
// sequence's first kv_len tokens (all of them, where it is causal).
//
// A unit is some tiles of query tokens of one kv head of a sequence, one after the other, so that what is made of its keys and
// values (varlen_rows.inl.h) serves them all. Each level has its own way over a segment.
#pragma once
#include "attention/read_ahead.inl.h"
#include "attention/scratch.inl.h"
#include "attention/units.inl.h"
#include "attention/varlen_rows.inl.h"
#include "contract/attention.h"
#include "vec/narrow.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kUnitTiles = 8;

// Units of a step, by sequence, then by column (kv head and part of its query heads), then by tiles; walked in ascending order.
class ColumnUnits {
 public:
  struct Place {
    int64_t seq, kv_head, part;
    int64_t first_tile, end_tile;
  };

  ColumnUnits(const Step& step, const TileShape& shape, int64_t num_threads) : step_(step), shape_(shape) {
    while (total() < 4 * num_threads && tiles_ > 1) tiles_ /= 2;
  }

  int64_t total() const {
    int64_t units = 0;
    for (int64_t s = 0; s < step_.num_seqs; ++s) units += units_of(s) * shape_.columns();
    return units;
  }

  Place at(int64_t u) {
    while (u >= base_ + units_of(seq_) * shape_.columns()) base_ += units_of(seq_++) * shape_.columns();
    const int64_t column = (u - base_) / units_of(seq_), first = (u - base_) % units_of(seq_) * tiles_;
    return {seq_, column / shape_.parts, column % shape_.parts, first, smaller(first + tiles_, tiles_of(seq_))};
  }

 private:
  int64_t tiles_of(int64_t s) const { return (step_.query_start[s + 1] - step_.query_start[s] + shape_.tokens - 1) / shape_.tokens; }
  int64_t units_of(int64_t s) const { return (tiles_of(s) + tiles_ - 1) / tiles_; }

  const Step& step_;
  const TileShape shape_;
  int64_t tiles_ = kUnitTiles;
  int64_t seq_ = 0, base_ = 0;  // where the walk is
};

// `before` is called with each tile whose rows are loaded; `segment_step(tile, kv, rule, segment, ahead)` is attend_segment in
// the level's own way. `extra_bytes` of scratch are the level's, and begin where `before_units(scratch, rows)` takes them.
template <class KV, class BeforeUnits, class Before, class SegmentStep>
void varlen_units(const void* raw, const Step& step, const Lane& lane, int64_t extra_bytes, BeforeUnits before_units, Before before,
                  SegmentStep segment_step) {
  const auto& a = *static_cast<const VarlenAttentionArgs*>(raw);
  const int64_t dim = a.head_dim, group = a.heads / a.kv_heads;
  const int64_t max = max_rows(lane, dim, KV::scratch_bytes(dim) + extra_bytes);
  const TileShape shape = TileShape::of(a.heads, a.kv_heads, max);
  const ScoreRule rule{a.scale, 0.0f, a.alibi != nullptr, true, a.bias ? a.reach : -1};
  Scratch scratch(lane);
  Tile tile = take_tile(scratch, max, dim);
  KV kv(scratch, dim);
  before_units(scratch, max);
  ColumnUnits units(step, shape, lane.num_threads);
  NoAhead no_ahead;
  const int64_t total = units.total();
  for (int64_t begin, end; lane.claim_in_order(total, 1, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const auto at = units.at(u);
      const int64_t first = step.query_start[at.seq], length = step.query_start[at.seq + 1] - first;
      const int64_t visible = step.kv_len[at.seq];
      const int64_t head0 = at.kv_head * group + at.part * shape.heads_per_part;
      const int64_t heads = smaller(shape.heads_per_part, (at.kv_head + 1) * group - head0);
      kv.begin(a.k + first * a.ldk + at.kv_head * dim, a.ldk, a.v + first * a.ldv + at.kv_head * dim, a.ldv, visible);
      for (int64_t t = at.first_tile; t < at.end_tile; ++t) {
        const int64_t start = t * shape.tokens;  // of the sequence
        tile.num_rows = smaller(length - start, shape.tokens) * heads;
        for (int64_t r = 0; r < tile.num_rows; ++r) {
          const int64_t head = head0 + r % heads;
          Row& row = tile.rows[r];
          row.position = start + r / heads;
          row.head = head;
          row.low = a.window > 0 ? larger(0, row.position - a.window) : 0;
          row.high = a.causal ? row.position : a.window > 0 ? smaller(visible - 1, row.position + a.window) : visible - 1;
          row.alibi = a.alibi ? a.alibi[head] : 0.0f;
          row.bias = a.bias ? a.bias + head * (2 * a.reach + 1) + a.reach : nullptr;
          row.has_segment = false;
          load_query<V, KV::kRoundsWeights>(a.q + (first + row.position) * a.ldq + head * dim, tile.q + r * dim, dim);
        }
        before(tile);
        attend(tile, [&](int64_t segment) { segment_step(tile, kv, rule, segment, no_ahead); });
        for (int64_t r = 0; r < tile.num_rows; ++r) {
          float* out = tile.out + r * dim;
          const int64_t row = first + tile.rows[r].position, column = (head0 + r % heads) * dim;
          float* y = a.narrow ? out : a.y + row * a.ldy + column;
          for (int64_t d = 0; d < dim; ++d) y[d] = out[d] / tile.rows[r].sum;
          if (a.narrow) vec::narrow_row<V>(y, dim, a.narrow + row * a.ldnarrow + column);
        }
      }
    }
}

// A level without products of its own.
template <class KV>
void varlen_attention_of(const void* raw, const Step& step, const Lane& lane) {
  varlen_units<KV>(
      raw, step, lane, 0, [](Scratch&, int64_t) {}, [](const Tile&) {},
      [](Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        attend_segment<V>(tile, kv, rule, segment, ahead);
      });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
