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

template <class V, int kRows, int kVecs, class View>
inline void dot32_rows(const RowBlock& b, const View& view, int64_t row, int64_t lane) {
  using F = typename V::F;
  F e[kRows][kVecs], o[kRows][kVecs];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) e[r][v] = o[r][v] = V::zero();
  const float* a = b.a + row * b.lda;
  for (int64_t i = 0; i < b.pairs; ++i) {
    F be[kVecs], bo[kVecs];
    for (int v = 0; v < kVecs; ++v) Pairs<V, View>::read(view, i, lane + v * V::kLanes, &be[v], &bo[v]);
    for (int r = 0; r < kRows; ++r) {
      const F ae = V::broadcast(a[r * b.lda + 2 * i]), ao = V::broadcast(a[r * b.lda + 2 * i + 1]);
      for (int v = 0; v < kVecs; ++v) {
        e[r][v] = V::fma(ae, be[v], e[r][v]);
        o[r][v] = V::fma(ao, bo[v], o[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) {
      F even = e[r][v], odd = o[r][v];
      if (b.pairs < kBlockPairs) {
        even = V::add(even, V::zero());
        odd = V::add(odd, V::zero());
      }
      float* out = b.out + (row + r) * b.ldo + lane + v * V::kLanes;
      const F sum = Pairs<V, View>::order(V::add(even, odd));
      V::store(out, V::add(b.is_first ? V::zero() : V::load(out), sum));
    }
}

// Rows per register tile: all chains, one pair of B and one broadcast fit the registers.
template <class V>
constexpr int kRowTile = V::kLanes == 16 ? 6 : 3;

template <class V, int kVecs, class View>
inline void dot32_columns(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  constexpr int kTile = kRowTile<V>;
  int64_t r = begin;
  for (; r + kTile <= end; r += kTile) dot32_rows<V, kTile, kVecs>(b, view, r, lane);
  if constexpr (kTile > 3)
    for (; r + 3 <= end; r += 3) dot32_rows<V, 3, kVecs>(b, view, r, lane);
  if (end - r == 2)
    dot32_rows<V, 2, kVecs>(b, view, r, lane);
  else if (end - r == 1)
    dot32_rows<V, 1, kVecs>(b, view, r, lane);
}

// Rows from which unpacking B once into float32 planes pays.
constexpr int64_t kUnpackRows = 12;

template <class V, int kVecs, class View>
inline void dot32_unpacked(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane) {
  constexpr int64_t kWidth = kVecs * V::kLanes;
  alignas(64) float planes[kBlockPairs][2][kWidth];
  for (int64_t i = 0; i < b.pairs; ++i)
    for (int v = 0; v < kVecs; ++v) {
      typename V::F e, o;
      Pairs<V, View>::read(view, i, lane + v * V::kLanes, &e, &o);
      V::store(&planes[i][0][v * V::kLanes], Pairs<V, View>::order(e));
      V::store(&planes[i][1][v * V::kLanes], Pairs<V, View>::order(o));
    }
  RowBlock local = b;
  local.out = b.out + lane;
  dot32_columns<V, kVecs>(local, Planes{planes[0][0], planes[0][1], 2 * kWidth}, begin, end, 0);
}

// Rows [begin, end) x lanes [0, lanes).
template <class V, class View>
inline void dot32_block(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lanes) {
  constexpr int kVecs = 2;
  int64_t lane = 0;
  for (; lane + kVecs * V::kLanes <= lanes; lane += kVecs * V::kLanes) {
    if (end - begin >= kUnpackRows)
      dot32_unpacked<V, kVecs>(b, view, begin, end, lane);
    else
      dot32_columns<V, kVecs>(b, view, begin, end, lane);
  }
  for (; lane + V::kLanes <= lanes; lane += V::kLanes) dot32_columns<V, 1>(b, view, begin, end, lane);
  if constexpr (V::kLanes > 1)
    for (; lane < lanes; ++lane) dot32_columns<vec::F32x1, 1>(b, view, begin, end, lane);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
