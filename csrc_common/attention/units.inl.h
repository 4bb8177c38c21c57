// Work units of an attention op: (sequence, tile of query tokens, kv head, part of its query heads), and for a sequence of one tile
// whose share of the step is large, (..., segment).
//
// Prefills come before sequences of one tile and late tiles (more keys) before early ones, so that the last units are small.
#pragma once
#include "attention/segment.inl.h"
#include "exec/kernel.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct TileShape {
  int64_t kv_heads;
  int64_t heads_per_part;  // query heads of one kv head in a tile
  int64_t parts;           // tiles that the query heads of a kv head need
  int64_t tokens;          // query tokens of a tile

  static TileShape of(int64_t heads, int64_t kv_heads, int64_t max_rows) {
    const int64_t group = heads / kv_heads;
    const int64_t per_part = group < max_rows ? group : max_rows;
    return {kv_heads, per_part, (group + per_part - 1) / per_part, max_rows / per_part};
  }
  int64_t columns() const { return kv_heads * parts; }
};

// When a sequence is split: its results per segment must fit (num_floats in all, row_floats per row), and there must be
// threads to share it.
struct SplitRule {
  int64_t num_threads = 1;
  int64_t window = 0;
  int64_t row_floats = 0;
  int64_t num_floats = 0;
};

struct Unit {
  int64_t seq;
  int64_t first_token, num_tokens;  // rows of the step
  int64_t kv_head;
  int64_t part;
  int64_t num_units;       // taken together: more than one where they are neighbouring segments
  int64_t num_segments;    // of the sequence, if it is split; else 0
  int64_t first_segment;   // the first one that the sequence sees
  int64_t at;              // of these units' segments, counted from first_segment
  int64_t partials;        // floats before this column's results
  int64_t column;
};

// Walks the units in order; at(u, end) wants ascending u, but where they are even. Every thread finds the same units.
class Units {
 public:
  Units(const Step& step, const TileShape& shape, const SplitRule& rule) : step_(step), shape_(shape), rule_(rule) {
    const bool may_split = rule.num_threads > 1 && rule.num_floats > 0;
    for (int64_t s = 0; s < step.num_seqs && may_split; ++s)
      cost_ += tokens_of(s) * (step.kv_len[s] - first_visible(s)) * shape.columns();
    is_even_ = true;
    for (int64_t s = 0; s < step.num_seqs; ++s) is_even_ &= tokens_of(s) == 1;
    for (rewind(); pass_ < 2; advance()) {
      total_ += units_;
      has_large_ |= pass_ == 0 && units_ > 0;
    }
    is_even_ &= total_ == step.num_seqs * shape.columns();
    rewind();
  }

  int64_t total() const { return total_; }

  // Whether every sequence has one token and none is split: all units take about as long, and may come in any order.
  bool is_even() const { return is_even_; }

  // Units worth claiming at once: neighbouring segments, as long as the threads have many claims each.
  int64_t chunk() const {
    const int64_t fair = total_ / (16 * rule_.num_threads);
    return has_large_ ? 1 : smaller(larger(fair, 1), 4);
  }

  // Unit u where they are even.
  Unit even_at(int64_t u) const {
    Unit unit{};
    unit.seq = u / shape_.columns();
    unit.column = u % shape_.columns();
    unit.kv_head = unit.column / shape_.parts;
    unit.part = unit.column % shape_.parts;
    unit.first_token = step_.query_start[unit.seq];
    unit.num_tokens = unit.num_units = 1;
    return unit;
  }

  // Unit u and those of its neighbours before `end` that can be taken with it.
  Unit at(int64_t u, int64_t end) {
    if (is_even_) return even_at(u);
    while (u >= base_ + units_) advance();
    const int64_t within = u - base_;
    Unit unit{};
    unit.seq = seq_;
    unit.num_units = 1;
    int64_t tile = 0, column = within;
    if (segments_ > 0) {
      column = within / segments_;
      unit.at = within % segments_;
      unit.num_units = smaller(segments_ - unit.at, end - u);
      unit.num_segments = segments_;
      unit.first_segment = first_visible(seq_) / kSegment;
      unit.partials = used_ + column * floats_per_column();
    } else {
      tile = tiles_of(seq_) - 1 - within / shape_.columns();
      column = within % shape_.columns();
    }
    unit.column = column;
    unit.kv_head = column / shape_.parts;
    unit.part = column % shape_.parts;
    unit.first_token = step_.query_start[seq_] + tile * shape_.tokens;
    unit.num_tokens = smaller(step_.query_start[seq_ + 1] - unit.first_token, shape_.tokens);
    return unit;
  }

 private:
  int64_t tokens_of(int64_t s) const { return step_.query_start[s + 1] - step_.query_start[s]; }
  int64_t tiles_of(int64_t s) const { return (tokens_of(s) + shape_.tokens - 1) / shape_.tokens; }
  int64_t first_visible(int64_t s) const {
    return rule_.window > 0 ? larger(0, step_.kv_len[s] - tokens_of(s) - rule_.window + 1) : 0;
  }
  int64_t floats_per_column() const { return segments_ * tokens_of(seq_) * shape_.heads_per_part * rule_.row_floats; }

  void rewind() {
    seq_ = pass_ = base_ = used_ = 0;
    enter();
  }

  void advance() {
    base_ += units_;
    if (segments_ > 0) used_ += shape_.columns() * floats_per_column();
    ++seq_;
    enter();
  }

  // Moves on to a sequence of this pass (0: several tiles, 1: one), and counts its units.
  void enter() {
    units_ = segments_ = 0;
    if (seq_ >= step_.num_seqs && ++pass_ == 1) seq_ = 0;
    if (seq_ >= step_.num_seqs) return;
    const int64_t tokens = tokens_of(seq_);
    if (tokens == 0 || (tokens <= shape_.tokens) != (pass_ == 1)) return;
    units_ = tiles_of(seq_) * shape_.columns();
    if (pass_ == 1 && cost_ > 0) split(tokens);
  }

  // A unit that takes more than an eighth of a thread's share of the step would leave the others waiting at its end.
  void split(int64_t tokens) {
    const int64_t low = first_visible(seq_), length = step_.kv_len[seq_];
    segments_ = (length - 1) / kSegment - low / kSegment + 1;
    const bool is_large = 8 * rule_.num_threads * tokens * (length - low) > cost_;
    if (segments_ > 1 && is_large && used_ + shape_.columns() * floats_per_column() <= rule_.num_floats)
      units_ *= segments_;
    else
      segments_ = 0;
  }

  const Step& step_;
  const TileShape shape_;
  const SplitRule rule_;
  int64_t cost_ = 0;   // of the step, in keys times query tokens of a column; 0: nothing may be split
  int64_t total_ = 0;
  bool has_large_ = false, is_even_ = false;
  // Where the walk is.
  int64_t seq_ = 0, pass_ = 0, base_ = 0;
  int64_t units_ = 0, segments_ = 0;  // of seq_ in this pass
  int64_t used_ = 0;                  // floats of the split sequences before
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
