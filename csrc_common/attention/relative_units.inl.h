// Runs the units of relative_attention: attention whose scores have terms of where a key stands, by a table of rows for
// distances: of the query with a row, and of the key with a row of another table (He et al. 2020).
//
// Both are products like those of queries and keys, made once for every row of a table that a tile of queries meets in a
// segment: at most as many as there are distances, fewer where distances share rows. Then each score takes its two. What is
// added lies in scratch by key, and enters as a bias does.
#pragma once
#include "attention/varlen_units.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kMostDistances = kSegment + kMaxRows;         // of a tile's queries and a segment's keys
constexpr int64_t kContentStride = kMostDistances + 2 * kBlock;  // rows of a table come in whole blocks
constexpr int64_t kBlockDistances = kBlock + kMaxRows;          // of a tile's queries and a block's keys
constexpr int64_t kAnyReach = int64_t{1} << 40;

// Rows of a table as the keys of a product: a block of them turned, and rounded where keys are.
template <bool rounds>
class TableRows : public SequenceRows {
 public:
  explicit TableRows(int64_t dim) : SequenceRows(dim) {}
  void take(Scratch& scratch) { turned_ = scratch.take<float>(kBlock * dim_); }
  Planes keys(int64_t block) const {
    turn_keys(block, turned_);
    if constexpr (rounds) load_query<V, true>(turned_, turned_, kBlock * dim_);
    return {turned_, turned_ + kBlock, 2 * kBlock};
  }

 private:
  float* turned_ = nullptr;
};

// Both products on vectors.
template <class KV>
class VectorProducts {
 public:
  static int64_t scratch_bytes(int64_t dim) { return (kBlockDistances + dim) * kBlock * static_cast<int64_t>(sizeof(float)); }
  explicit VectorProducts(int64_t dim) : table_(dim) {}
  void take(Scratch& scratch) {
    rows_ = scratch.take<float>(kBlockDistances * kBlock);
    table_.take(scratch);
  }
  void begin(const float* table, int64_t dim, int64_t num_rows) { table_.begin(table, dim, nullptr, 0, num_rows); }
  void tile(const Tile&) {}

  // The tile's queries with a block of rows of the table.
  void of_queries(const Tile& tile, int64_t block, float* out) {
    const int64_t dim = tile.head_dim;
    const auto keys = table_.keys(block);
    for (int64_t d = 0; d < dim; d += 2 * kBlockPairs) {
      const RowBlock rows{tile.q + d, dim, out, kContentStride, smaller(kBlockPairs, (dim - d) / 2), d == 0};
      dot32_block<V>(rows, RowsKV::from_pair(keys, d / 2), 0, tile.num_rows, kBlock);
    }
  }

  // Some rows with a block of keys.
  void of_keys(KV& kv, int64_t block, const float* from, int64_t dim, int64_t count, float* out) {
    const auto keys = kv.keys(block, nullptr);
    for (int64_t d = 0; d < dim; d += 2 * kBlockPairs) {
      RowBlock rows{from + d, dim, out, kBlock, smaller(kBlockPairs, (dim - d) / 2), d == 0};
      if constexpr (KV::kRoundsWeights) {
        for (int64_t r = 0; r < count; ++r) load_query<V, true>(rows.a + r * dim, rows_ + r * kBlock, 2 * rows.pairs);
        rows.a = rows_;
        rows.lda = kBlock;
      }
      dot32_block<V>(rows, KV::from_pair(keys, d / 2), 0, count, kBlock);
    }
  }

 private:
  float* rows_ = nullptr;  // of a table, rounded
  TableRows<KV::kRoundsWeights> table_;
};

template <class KV, class Products>
class RelativeScores {
 public:
  static int64_t scratch_bytes(int64_t dim) {
    const int64_t floats = kMaxRows * (kContentStride + kScoreStride) + kBlockDistances * kBlock + kMostDistances;
    return floats * static_cast<int64_t>(sizeof(float)) + Products::scratch_bytes(dim);
  }

  explicit RelativeScores(const RelativeAttentionArgs& a) : a_(a), products_(a.head_dim) {}

  void take(Scratch& scratch) {
    by_query_ = scratch.take<float>(kMaxRows * kContentStride);
    added_ = scratch.take<float>(kMaxRows * kScoreStride);
    by_key_ = scratch.take<float>(kBlockDistances * kBlock);
    at_ = scratch.take<int32_t>(kMostDistances);
    products_.take(scratch);
  }

  // Before the segments of a tile, which is of one head.
  void begin(const Tile& tile) {
    products_.tile(tile);
    const int64_t head = tile.rows[0].head, size = a_.buckets * a_.head_dim;
    if (head == head_) return;
    head_ = head;
    if (a_.rel_k) products_.begin(a_.rel_k + head * size, a_.head_dim, a_.buckets);
    if (a_.rel_q) row_ = a_.rel_q + head * size;
  }

  // Points every row of the tile to what its scores of the segment get.
  void prepare(Tile& tile, KV& kv, int64_t segment) {
    const int64_t first = tile.rows[0].position, last = tile.rows[tile.num_rows - 1].position, begin = segment * kSegment;
    const int64_t end = smaller(begin + kSegment, (tile.rows[0].high / kBlock + 1) * kBlock);
    const int64_t low = begin - last, count = end - first - low;
    for (int64_t i = 0; i < count; ++i) at_[i] = a_.by_distance[a_.reach + larger(-a_.reach, smaller(a_.reach, low + i))];
    const int64_t first_block = at_[0] / kBlock, last_block = at_[count - 1] / kBlock;
    if (a_.rel_k)
      for (int64_t block = first_block; block <= last_block; ++block)
        products_.of_queries(tile, block, by_query_ + (block - first_block) * kBlock);
    for (int64_t block = begin / kBlock; block * kBlock < end; ++block) {
      const int32_t* at = at_ + block * kBlock - begin;  // of the last query
      if (a_.rel_q) products_.of_keys(kv, block, row_ + at[0] * a_.head_dim, a_.head_dim, at[kBlock - 1 + last - first] - at[0] + 1, by_key_);
      for (int64_t r = 0; r < tile.num_rows; ++r)
        add(at + last - tile.rows[r].position, by_query_ + r * kContentStride - first_block * kBlock, at[0],
            added_ + r * kScoreStride + block * kBlock - begin);
    }
    for (int64_t r = 0; r < tile.num_rows; ++r) tile.rows[r].bias = added_ + r * kScoreStride + tile.rows[r].position - begin;
  }

 private:
  // to[i] = (by_query[at[i]] + by_key[at[i]][i]) * scale of a block's keys i.
  void add(const int32_t* at, const float* by_query, int64_t first, float* to) const {
    const auto scale = V::broadcast(a_.scale);
    alignas(64) float lanes[kBlock];
    if (a_.rel_q)
      for (int64_t i = 0; i < kBlock; ++i) lanes[i] = by_key_[(at[i] - first) * kBlock + i];
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      typename V::F x;
      if (!a_.rel_k) {
        x = V::load(lanes + i);
      } else {
        x = content(at + i, by_query);
        if (a_.rel_q) x = V::add(x, V::load(lanes + i));
      }
      V::store(to + i, V::mul(x, scale));
    }
  }

  // Rows ascend by one at most, so the ends tell whether each distance has its own.
  static typename V::F content(const int32_t* at, const float* by_query) {
    if (at[V::kLanes - 1] - at[0] == V::kLanes - 1) return V::load(by_query + at[0]);
    float lanes[V::kLanes];
    for (int64_t i = 0; i < V::kLanes; ++i) lanes[i] = by_query[at[i]];
    return V::load(lanes);
  }

  const RelativeAttentionArgs& a_;
  int64_t head_ = -1;
  const float* row_ = nullptr;  // of rel_q, the head's first
  Products products_;           // rel_k of the head among them
  float* by_query_ = nullptr;   // [rows of the tile][kContentStride]
  float* by_key_ = nullptr;     // [rows of rel_q][keys of a block]
  float* added_ = nullptr;      // [rows of the tile][kScoreStride]
  int32_t* at_ = nullptr;       // rows of the tables, by distance
};

// `Products`: in which way; `before(tile)` and `attend(tile, kv, rule, segment, ahead)` are the level's own.
template <class Products, class KV, class BeforeUnits, class Before, class Attend>
void relative_units(const void* raw, const Step& step, const Lane& lane, int64_t extra_bytes, BeforeUnits before_units, Before before,
                    Attend attend) {
  const auto& a = *static_cast<const RelativeAttentionArgs*>(raw);
  const VarlenAttentionArgs plain{a.q,     a.ldq,   a.k,        a.ldk, a.v,     a.ldv,   a.y, a.ldy,
                                  a.heads, a.heads, a.head_dim, 0,     nullptr, nullptr, 0,   a.scale, 0,   nullptr, 0};
  using Scores = RelativeScores<KV, Products>;
  Scores relative(a);
  varlen_units<KV>(
      &plain, step, lane, Scores::scratch_bytes(a.head_dim) + extra_bytes,
      [&](Scratch& scratch, int64_t rows) {
        relative.take(scratch);
        before_units(scratch, rows);
      },
      [&](const Tile& tile) {
        relative.begin(tile);
        before(tile);
      },
      [&](Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        relative.prepare(tile, kv, segment);
        ScoreRule with = rule;
        with.reach = kAnyReach;
        attend(tile, kv, with, segment, ahead);
      });
}

// A level without products of its own.
template <class KV>
void relative_attention_of(const void* raw, const Step& step, const Lane& lane) {
  relative_units<VectorProducts<KV>, KV>(
      raw, step, lane, 0, [](Scratch&, int64_t) {}, [](const Tile&) {},
      [](Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
        attend_segment<V>(tile, kv, rule, segment, ahead);
      });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
