// dot32 of many float32 rows with one block of 32 k-values: out[r][lane] (+)= even chain + odd chain.
//
// The rows are broadcast, the lanes of B are the outputs (tokens for Q.K^T, dims for P.V). A block shorter than 32 is padded
// with zeros: one fma(0, 0, chain), that is chain + 0, settles the sign of a zero chain as the full padding does.
#pragma once
#include <type_traits>

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

template <class V, int kRows, int kVecs>
using Sums = typename V::F[kRows][kVecs];

// Where both kinds of chain of a tile fit the registers, beside what is read.
template <class V, int kRows, int kVecs>
constexpr bool kFitsBoth = V::kLanes == 16 ? 2 * kRows * kVecs + 2 * kVecs + 2 <= 32 : 2 * kRows * kVecs <= 8;

// One chain of every (row, lane): a[r][0], a[r][2], ... with the even or the odd elements of the pairs.
template <class V, bool is_odd, bool is_full, int kRows, int kVecs, class View>
inline void one_chain(const RowBlock& b, const View& view, const float* a, int64_t lane, Sums<V, kRows, kVecs>& sum) {
  const int64_t pairs = is_full ? kBlockPairs : b.pairs;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) sum[r][v] = V::zero();
#pragma GCC unroll 1  // unrolled, the rows' values of all steps are kept, on the stack
  for (int64_t i = 0; i < pairs; ++i) {
    if (!is_odd) look_ahead(view, i, lane, kVecs * V::kLanes);
    typename V::F x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = V::broadcast(a[r * b.lda + 2 * i + is_odd]);
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = lane + v * V::kLanes;
      const auto y = is_odd ? Pairs<V, View>::odd(view, i, at) : Pairs<V, View>::even(view, i, at);
      for (int r = 0; r < kRows; ++r) sum[r][v] = V::fma(x[r], y, sum[r][v]);
    }
  }
}

template <class V, bool is_full, int kRows, int kVecs, class View>
inline void both_chains(const RowBlock& b, const View& view, const float* a, int64_t lane, Sums<V, kRows, kVecs>& even,
                        Sums<V, kRows, kVecs>& odd) {
  const int64_t pairs = is_full ? kBlockPairs : b.pairs;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) even[r][v] = odd[r][v] = V::zero();
#pragma GCC unroll 1
  for (int64_t i = 0; i < pairs; ++i) {
    look_ahead(view, i, lane, kVecs * V::kLanes);
    if constexpr (V::kLanes == 16) {
      typename V::F y[kVecs][2];
      for (int v = 0; v < kVecs; ++v) {
        y[v][0] = Pairs<V, View>::even(view, i, lane + v * V::kLanes);
        y[v][1] = Pairs<V, View>::odd(view, i, lane + v * V::kLanes);
      }
      for (int r = 0; r < kRows; ++r) {
        const auto x = V::broadcast(a[r * b.lda + 2 * i]), z = V::broadcast(a[r * b.lda + 2 * i + 1]);
        for (int v = 0; v < kVecs; ++v) {
          even[r][v] = V::fma(x, y[v][0], even[r][v]);
          odd[r][v] = V::fma(z, y[v][1], odd[r][v]);
        }
      }
    } else {
      for (int v = 0; v < kVecs; ++v) {
        const auto y = Pairs<V, View>::even(view, i, lane + v * V::kLanes);
        for (int r = 0; r < kRows; ++r) even[r][v] = V::fma(V::broadcast(a[r * b.lda + 2 * i]), y, even[r][v]);
        const auto z = Pairs<V, View>::odd(view, i, lane + v * V::kLanes);
        for (int r = 0; r < kRows; ++r) odd[r][v] = V::fma(V::broadcast(a[r * b.lda + 2 * i + 1]), z, odd[r][v]);
      }
    }
  }
}

// Where the registers do not hold both, the chains run one after the other.
template <class V, bool is_full, int kRows, int kVecs, class View>
inline void dot32_rows(const RowBlock& b, const View& view, int64_t row, int64_t lane) {
  const float* a = b.a + row * b.lda;
  float* out = b.out + row * b.ldo + lane;
  const int64_t ldo = b.ldo;
  const bool is_first = b.is_first;
  Sums<V, kRows, kVecs> even, odd;
  if constexpr (kFitsBoth<V, kRows, kVecs>) {
    both_chains<V, is_full, kRows, kVecs>(b, view, a, lane, even, odd);
  } else {
    alignas(64) float kept[kRows * kVecs * V::kLanes];
    one_chain<V, false, is_full, kRows, kVecs>(b, view, a, lane, even);
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVecs; ++v) V::store(kept + (r * kVecs + v) * V::kLanes, even[r][v]);
    one_chain<V, true, is_full, kRows, kVecs>(b, view, a, lane, odd);
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVecs; ++v) even[r][v] = V::load(kept + (r * kVecs + v) * V::kLanes);
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) {
      if (!is_full) {
        even[r][v] = V::add(even[r][v], V::zero());
        odd[r][v] = V::add(odd[r][v], V::zero());
      }
      const auto both = Pairs<V, View>::order(V::add(even[r][v], odd[r][v]));
      float* at = out + r * ldo + v * V::kLanes;
      V::store(at, V::add(is_first ? V::zero() : V::load(at), both));
    }
}

// AVX2 takes a tile in two halves of its lanes where that lets both chains fit, or where one alone does not; three rows of planes
// go at full speed as they are.
template <class V, bool is_full, int kRows, int kVecs, class View>
inline void dot32_tile(const RowBlock& b, const View& view, int64_t row, int64_t lane) {
  constexpr bool is_whole = V::kLanes == 16 || kVecs % 2 || kRows == 1 || (kRows == 3 && std::is_same_v<View, Planes>);
  if constexpr (!is_whole) {
    dot32_rows<V, is_full, kRows, kVecs / 2>(b, view, row, lane);
    dot32_rows<V, is_full, kRows, kVecs / 2>(b, view, row, lane + kVecs / 2 * V::kLanes);
  } else {
    dot32_rows<V, is_full, kRows, kVecs>(b, view, row, lane);
  }
}

// Rows in tiles of six (AVX2: three of planes, else four); of the last ones no tile is much smaller than it must be.
template <class V, bool is_full, int kVecs, class View>
inline void dot32_columns_of(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  constexpr int kTile = V::kLanes == 16 ? 6 : std::is_same_v<View, Planes> ? 3 : 4, kMost = V::kLanes == 16 ? 8 : 4;
  int64_t r = begin;
  for (; end - r > kMost || end - r == kTile; r += kTile) dot32_tile<V, is_full, kTile, kVecs>(b, view, r, lane);
  if (end - r > 6) {
    dot32_tile<V, is_full, 4, kVecs>(b, view, r, lane);
    r += 4;
  }
  switch (end - r) {
    case 1: return dot32_tile<V, is_full, 1, kVecs>(b, view, r, lane);
    case 2: return dot32_tile<V, is_full, 2, kVecs>(b, view, r, lane);
    case 3: return dot32_tile<V, is_full, 3, kVecs>(b, view, r, lane);
    case 4: return dot32_tile<V, is_full, 4, kVecs>(b, view, r, lane);
    case 5:
      if constexpr (kMost > 4) dot32_tile<V, is_full, 5, kVecs>(b, view, r, lane);
  }
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
  for (int64_t i = 0; i < b.pairs; ++i) {
    look_ahead(view, i, lane, kWidth);
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = lane + v * V::kLanes;
      V::store(&planes[i][0][v * V::kLanes], Pairs<V, View>::order(Pairs<V, View>::even(view, i, at)));
      V::store(&planes[i][1][v * V::kLanes], Pairs<V, View>::order(Pairs<V, View>::odd(view, i, at)));
    }
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
