// Cuts a tile's arrays out of a thread's scratch, and says how many rows fit.
#pragma once
#include "attention/segment.inl.h"
#include "exec/kernel.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kMaxRows = 48;  // per tile: weights, queries and results of a segment stay in the second-level cache

class Scratch {
 public:
  explicit Scratch(const Lane& lane) : at_(static_cast<uint8_t*>(lane.scratch)) {}
  template <class T>
  T* take(int64_t count) {
    T* found = reinterpret_cast<T*>(at_);
    at_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return found;
  }

 private:
  uint8_t* at_;
};

// Rows of a tile beside `extra_bytes` of other scratch; at least 1 for head_dim up to 4,096.
inline int64_t max_rows(const Lane& lane, int64_t head_dim, int64_t extra_bytes) {
  const int64_t row_bytes = static_cast<int64_t>(sizeof(Row)) + 4 * (kScoreStride + 3 * head_dim) + 256;
  return larger(1, smaller(kMaxRows, (lane.scratch_bytes - extra_bytes) / row_bytes));
}

inline Tile take_tile(Scratch& scratch, int64_t rows, int64_t head_dim) {
  Tile tile;
  tile.num_rows = 0;
  tile.head_dim = head_dim;
  tile.rows = scratch.take<Row>(rows);
  tile.q = scratch.take<float>(rows * head_dim);
  tile.scores = scratch.take<float>(rows * kScoreStride);
  tile.part = scratch.take<float>(rows * head_dim);
  tile.out = scratch.take<float>(rows * head_dim);
  return tile;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
