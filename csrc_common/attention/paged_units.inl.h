// Runs the units of a paged attention op, each level with its own way over a segment.
//
// A unit is one kv head of one sequence with a tile of its query tokens: all query heads of that kv head are rows of one tile,
// so keys and values are read once. Where a sequence is split, each segment's sums, maxima and outputs go to memory that the
// team shares; the thread that ends the last segment folds them all, in their order.
#pragma once
#include "attention/paged_rows.inl.h"
#include "attention/read_ahead.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Results of one segment: outputs [rows][head_dim], then maximum and sum of each row.
inline int64_t partial_row_floats(int64_t head_dim) { return head_dim + 2; }

void keep_segment(const Tile& tile, float* kept) {
  const int64_t rows = tile.num_rows, outputs = rows * tile.head_dim;
  std::memcpy(kept, tile.part, static_cast<size_t>(outputs) * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    kept[outputs + 2 * r] = tile.rows[r].segment_max;
    kept[outputs + 2 * r + 1] = tile.rows[r].segment_sum;
  }
}

void fold_segments(Tile& tile, const Unit& unit, const float* kept) {
  const int64_t rows = tile.num_rows, dim = tile.head_dim;
  for (int64_t i = 0; i < unit.num_segments; ++i, kept += rows * partial_row_floats(dim))
    for (int64_t r = 0; r < rows; ++r) {
      Row& row = tile.rows[r];
      const BlockRange range = visible_blocks(row, unit.first_segment + i);
      if (range.first > range.last) continue;
      row.segment_max = kept[rows * dim + 2 * r];
      row.segment_sum = kept[rows * dim + 2 * r + 1];
      fold_row(row, kept + r * dim, tile.out + r * dim, dim);
    }
}

// `segment_step(tile, kv, segment, ahead)` fills segment_max, segment_sum and part of the rows that see the segment; `before`
// is called with each tile whose rows are loaded.
template <class KV, class Before, class SegmentStep>
void run_units(const PagedAttentionArgs& a, const Step& step, const Lane& lane, const TileShape& shape, Tile& tile,
               typename KV::Element* tail, Before before, SegmentStep segment_step) {
  const SplitRule rule{lane.num_threads, a.window, partial_row_floats(a.head_dim), a.partials_bytes / 4};
  Units units(step, shape, rule);
  const int64_t total = units.total(), chunk = units.chunk();
  const bool in_order = !units.is_even(), is_descending = !lane.share->is_front() && lane.num_threads > 1;
  for (int64_t begin, end; lane.claim_next(in_order, total, chunk, &begin, &end);)
    for (int64_t u = begin; u < end;) {
      const Unit unit = units.at(u, end);
      u += unit.num_units;
      const HeadPages pages(a, step, unit.seq, unit.kv_head);
      KV kv{pages, step.kv_len[unit.seq], tail};
      load_rows<KV>(a, step, shape, unit, tile);
      before(tile);
      const int64_t low = tile.rows[0].low, high = tile.rows[tile.num_rows - 1].high;
      if (unit.num_segments == 0) {
        ReadAhead<KV> ahead(kv, low / kBlock, high / kBlock);
        const int64_t next = u < end ? u : is_descending ? begin - chunk : end;  // of this thread, likely
        if (!in_order && next >= 0 && next < total) {
          const Unit coming = units.even_at(next);
          const HeadPages coming_pages(a, step, coming.seq, coming.kv_head);
          const int64_t length = step.kv_len[coming.seq], seen = a.window > 0 ? larger(0, length - a.window) : 0;
          ahead.then(KV{coming_pages, length, tail}, seen / kBlock, (length - 1) / kBlock);
        }
        attend(tile, [&](int64_t segment) { segment_step(tile, kv, segment, ahead); });
        store_rows(a, shape, unit, tile);
        continue;
      }
      const int64_t first = unit.first_segment + unit.at, last = first + unit.num_units - 1;
      ReadAhead<KV> ahead(kv, larger(low, first * kSegment) / kBlock, smaller(high, (last + 1) * kSegment - 1) / kBlock);
      float* results = a.partials + unit.partials;
      for (int64_t segment = first; segment <= last; ++segment) {
        segment_step(tile, kv, segment, ahead);
        keep_segment(tile, results + (segment - unit.first_segment) * tile.num_rows * partial_row_floats(a.head_dim));
      }
      std::atomic<int32_t>& num_done = a.counters[unit.seq * shape.columns() + unit.column];
      const int32_t mine = static_cast<int32_t>(unit.num_units);
      if (num_done.fetch_add(mine, std::memory_order_acq_rel) + mine < unit.num_segments) continue;
      num_done.store(0, std::memory_order_relaxed);  // for the next op
      fold_segments(tile, unit, results);
      store_rows(a, shape, unit, tile);
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
