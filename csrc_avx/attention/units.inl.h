// Work units of an attention op: (sequence, tile of query tokens, kv head, part of its query heads).
//
// Prefills come before single-token sequences and late tiles (more keys) before early ones, so that the last units are small.
#pragma once
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
};

struct Unit {
  int64_t seq;
  int64_t first_token, num_tokens;  // rows of the step
  int64_t kv_head;
  int64_t part;
};

// Walks the units in order; at(u) wants ascending u.
class Units {
 public:
  Units(const Step& step, const TileShape& shape) : step_(step), shape_(shape) {}

  int64_t total() const {
    int64_t count = 0;
    for (int64_t s = 0; s < step_.num_seqs; ++s) count += units_of(s);
    return count;
  }

  Unit at(int64_t u) {
    while (skips(seq_) || u >= base_ + units_of(seq_)) {
      if (!skips(seq_)) base_ += units_of(seq_);
      if (++seq_ == step_.num_seqs) {
        seq_ = 0;
        is_decode_pass_ = true;
      }
    }
    const int64_t within = u - base_, per_tile = shape_.kv_heads * shape_.parts;
    const int64_t tile = tiles_of(seq_) - 1 - within / per_tile;
    const int64_t first = step_.query_start[seq_] + tile * shape_.tokens;
    const int64_t left = step_.query_start[seq_ + 1] - first;
    return {seq_, first, left < shape_.tokens ? left : shape_.tokens, within % per_tile / shape_.parts, within % shape_.parts};
  }

 private:
  int64_t tokens_of(int64_t s) const { return step_.query_start[s + 1] - step_.query_start[s]; }
  int64_t tiles_of(int64_t s) const { return (tokens_of(s) + shape_.tokens - 1) / shape_.tokens; }
  int64_t units_of(int64_t s) const { return tiles_of(s) * shape_.kv_heads * shape_.parts; }
  bool skips(int64_t s) const { return (tokens_of(s) <= 1) != is_decode_pass_; }

  const Step& step_;
  const TileShape shape_;
  int64_t seq_ = 0;
  int64_t base_ = 0;
  bool is_decode_pass_ = false;
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
