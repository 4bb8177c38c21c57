// dot32 of many float32 rows with one block of 32 k-values: out[r][lane] (+)= even chain + odd chain.
//
// The rows are broadcast, the lanes of B are the outputs (tokens for Q.K^T, dims for P.V). A block shorter than 32 is padded
// with zeros: one fma(0, 0, chain), that is chain + 0, settles the sign of a zero chain as the full padding does.
#pragma once
#include "attention/pairs.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kBlockPairs = 16;

struct RowBlock {
  const float* a;  // rows at a + r * lda
  int64_t lda;
  float* out;  // rows at out + r * ldo
  int64_t ldo;
  int64_t pairs;  // of this block, 1 .. 16
  bool is_first;  // of its chain of blocks: out starts at +0
};

// One chain of every (row, lane): a[r][0], a[r][2], ... with the even or the odd elements of the pairs.
template <class V, bool is_odd, bool is_full, int kRows, int kVecs, class View>
inline void chain(const RowBlock& b, const View& view, const float* a, int64_t lane, typename V::F (&sum)[kRows][kVecs]) {
  const int64_t pairs = is_full ? kBlockPairs : b.pairs;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) sum[r][v] = V::zero();
  for (int64_t i = 0; i < pairs; ++i) {
    typename V::F x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = V::broadcast(a[r * b.lda + 2 * i + is_odd]);
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = lane + v * V::kLanes;
      const auto y = is_odd ? Pairs<V, View>::odd(view, i, at) : Pairs<V, View>::even(view, i, at);
      for (int r = 0; r < kRows; ++r) sum[r][v] = V::fma(x[r], y, sum[r][v]);
    }
  }
  if (!is_full)
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVecs; ++v) sum[r][v] = V::add(sum[r][v], V::zero());
}

// The chains run one after the other: 12 sums, the rows' values and one vector of B fill the sixteen registers of AVX2.
template <class V, bool is_full, int kRows, int kVecs, class View>
inline void dot32_rows(const RowBlock& b, const View& view, int64_t row, int64_t lane) {
  const float* a = b.a + row * b.lda;
  float* out = b.out + row * b.ldo + lane;
  alignas(64) float kept[kRows * kVecs * V::kLanes];
  typename V::F sum[kRows][kVecs];
  chain<V, false, is_full>(b, view, a, lane, sum);
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) V::store(kept + (r * kVecs + v) * V::kLanes, sum[r][v]);
  chain<V, true, is_full>(b, view, a, lane, sum);
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) {
      const auto both = Pairs<V, View>::order(V::add(V::load(kept + (r * kVecs + v) * V::kLanes), sum[r][v]));
      float* at = out + r * b.ldo + v * V::kLanes;
      V::store(at, V::add(b.is_first ? V::zero() : V::load(at), both));
    }
}

template <class V>
constexpr int kRowTile = V::kLanes == 16 ? 6 : 3;

template <class V, bool is_full, int kVecs, class View>
inline void dot32_columns_of(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  constexpr int kTile = kRowTile<V>;
  int64_t r = begin;
  for (; r + kTile <= end; r += kTile) dot32_rows<V, is_full, kTile, kVecs>(b, view, r, lane);
  if constexpr (kTile > 3)
    for (; r + 3 <= end; r += 3) dot32_rows<V, is_full, 3, kVecs>(b, view, r, lane);
  if (end - r == 2)
    dot32_rows<V, is_full, 2, kVecs>(b, view, r, lane);
  else if (end - r == 1)
    dot32_rows<V, is_full, 1, kVecs>(b, view, r, lane);
}

template <class V, int kVecs, class View>
inline void dot32_columns(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  if (b.pairs == kBlockPairs)
    dot32_columns_of<V, true, kVecs>(b, view, begin, end, lane);
  else
    dot32_columns_of<V, false, kVecs>(b, view, begin, end, lane);
}

template <class V, int kVecs, class View>
inline void dot32_unpacked(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  constexpr int64_t kWidth = kVecs * V::kLanes;
  alignas(64) float planes[kBlockPairs][2][kWidth];
  for (int64_t i = 0; i < b.pairs; ++i)
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = lane + v * V::kLanes;
      V::store(&planes[i][0][v * V::kLanes], Pairs<V, View>::order(Pairs<V, View>::even(view, i, at)));
      V::store(&planes[i][1][v * V::kLanes], Pairs<V, View>::order(Pairs<V, View>::odd(view, i, at)));
    }
  RowBlock local = b;
  local.out = b.out + lane;
  dot32_columns<V, kVecs>(local, Planes{planes[0][0], planes[0][1], 2 * kWidth}, begin, end, 0);
}

template <class V, int kVecs, class View>
inline void dot32_lanes(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  if (end - begin >= Pairs<V, View>::kUnpackRows)
    dot32_unpacked<V, kVecs>(b, view, begin, end, lane);
  else
    dot32_columns<V, kVecs>(b, view, begin, end, lane);
}

// Rows [begin, end) x lanes [0, lanes).
template <class V, class View>
inline void dot32_block(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lanes) {
  constexpr int kVecs = V::kLanes == 16 ? 2 : 4;
  int64_t lane = 0;
  for (; lane + kVecs * V::kLanes <= lanes; lane += kVecs * V::kLanes) dot32_lanes<V, kVecs>(b, view, begin, end, lane);
  for (; lane + V::kLanes <= lanes; lane += V::kLanes) dot32_lanes<V, 1>(b, view, begin, end, lane);
  if constexpr (V::kLanes > 1)
    for (; lane < lanes; ++lane) dot32_columns<vec::F32x1, 1>(b, view, begin, end, lane);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
