// Rows of a tile of queries, what each sees, and the blocks of positions in which it is looked at.
#pragma once
#include <cstring>

#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kSegment = 512;
constexpr int64_t kBlock = 32;
constexpr int64_t kScoreStride = kSegment + 16;  // keeps the rows of a tile out of each other's cache sets

// One query head of one query token.
struct Row {
  int64_t low, high;  // visible positions, inclusive
  int64_t position;
  int64_t head;       // of the queries, in varlen attention
  float alibi;        // slope
  const float* bias;  // of the row's own position, where the rule has one
  float max, sum;     // of the segments folded so far
  float segment_max, segment_sum;
  bool has_segment;
};

struct Tile {
  int64_t num_rows;
  int64_t head_dim;
  Row* rows;
  float* q;       // [num_rows][head_dim]
  float* scores;  // [num_rows][kScoreStride], then the weights
  float* part;    // [num_rows][head_dim], P.V of the segment
  float* out;     // [num_rows][head_dim], folded
};

struct ScoreRule {
  float scale;
  float softcap;    // 0 = off
  bool has_alibi;
  bool is_two_sided;  // alibi by -|i - j| instead of j - i
  int64_t reach = -1;  // of the bias by j - i; -1 = none
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The blocks (in units of 32 positions) of segment `segment` that row r sees; empty if first > last.
struct BlockRange {
  int64_t first, last;
};
inline BlockRange visible_blocks(const Row& row, int64_t segment) {
  const int64_t begin = segment * kSegment, end = begin + kSegment - 1;
  if (row.low > end || row.high < begin) return {1, 0};
  return {larger(row.low, begin) / kBlock, smaller(row.high, end) / kBlock};
}

// Calls body(block, row_begin, row_end) for every block of the segment that some row sees.
template <class Body>
void for_blocks(const Tile& tile, int64_t segment, Body body) {
  const int64_t begin = segment * kSegment;
  const int64_t low = larger(tile.rows[0].low, begin), high = smaller(tile.rows[tile.num_rows - 1].high, begin + kSegment - 1);
  int64_t row_begin = 0, row_end = 0;
  for (int64_t block = low / kBlock; block * kBlock <= high; ++block) {
    while (row_begin < tile.num_rows && tile.rows[row_begin].high < block * kBlock) ++row_begin;
    while (row_end < tile.num_rows && tile.rows[row_end].low < (block + 1) * kBlock) ++row_end;
    if (row_begin < row_end) body(block, row_begin, row_end);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
