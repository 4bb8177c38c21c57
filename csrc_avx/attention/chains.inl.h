// dot32 of many bf16 rows with one block of 32 k-values by VDPBF16PS, the contract's bits: out[r][lane] (+)= even chain + odd chain.
//
// Keys and values are turned to quads (quads.inl.h) for 32 lanes at a time, in L1; then tiles of six rows and two vectors keep
// both kinds of chain in registers, at the full rate of the instruction.
#pragma once
#include "attention/quads.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct ChainBlock {
  const uint16_t* a;  // rows at a + r * lda, in quads
  int64_t lda;
  float* out;  // rows at out + r * ldo
  int64_t ldo;
  int64_t pairs;  // of this block, 1 .. 16
  bool is_first;  // of its chain of blocks: out starts at +0
};

// What a block was turned to, what it was turned from (with the tile to ask for meanwhile), and its first lane there.
template <class T>
struct TurnedBlock {
  const uint32_t* at;
  Packed<T> source;
  int64_t lane;
};

inline __m512bh word_of(const uint16_t* x) {
  float word;
  std::memcpy(&word, x, sizeof word);
  return (__m512bh)_mm512_set1_ps(word);
}

// kRows rows x kVecs vectors from `lane` on; unless it is whole, of the only vector `lanes` lanes are there.
template <int kRows, int kVecs, bool is_whole, bool is_full, class T>
inline void chains_tile(const ChainBlock& b, const TurnedBlock<T>& y, int64_t row, int64_t lane, int64_t lanes) {
  const int64_t lda = b.lda, ldo = b.ldo, quads = is_full ? kBlockQuads : (b.pairs + 1) / 2;
  const uint16_t* a = b.a + row * lda;
  float* out = b.out + row * ldo + lane;
  const bool is_first = b.is_first;
  V::F even[kRows][kVecs], odd[kRows][kVecs];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) even[r][v] = odd[r][v] = V::zero();
#pragma GCC unroll 1
  for (int64_t i = 0; i < quads; ++i) {
    look_ahead(y.source, 2 * i, y.lane + lane, kVecs * 16);
    look_ahead(y.source, 2 * i + 1, y.lane + lane, kVecs * 16);
    __m512bh evens[kVecs], odds[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      evens[v] = (__m512bh)_mm512_loadu_si512(y.at + i * kQuadWords + lane + 16 * v);
      odds[v] = (__m512bh)_mm512_loadu_si512(y.at + i * kQuadWords + kWide + lane + 16 * v);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = word_of(a + r * lda + 4 * i), z = word_of(a + r * lda + 4 * i + 2);
      for (int v = 0; v < kVecs; ++v) {
        even[r][v] = _mm512_dpbf16_ps(even[r][v], x, evens[v]);
        odd[r][v] = _mm512_dpbf16_ps(odd[r][v], z, odds[v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (!is_full) {  // what padding to 32 does to the sign of a zero
        even[r][v] = V::add(even[r][v], V::zero());
        odd[r][v] = V::add(odd[r][v], V::zero());
      }
      const V::F both = V::add(even[r][v], odd[r][v]);
      float* at = out + r * ldo + 16 * v;
      const int n = static_cast<int>(lanes);
      if constexpr (is_whole)
        V::store(at, V::add(is_first ? V::zero() : V::load(at), both));
      else
        V::store_n(at, V::add(is_first ? V::zero() : V::load_n(at, n), both), n);
    }
}

// Tiles of six rows; of the last ones no tile is much smaller than it must be. Only the first tile asks for what comes.
template <int kVecs, bool is_whole, bool is_full, class T>
inline void chains_rows(const ChainBlock& b, TurnedBlock<T> y, int64_t begin, int64_t end, int64_t lane, int64_t lanes) {
  int64_t r = begin;
  for (; end - r > 8 || end - r == 6; r += 6) {
    chains_tile<6, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    y.source.ahead = nullptr;
  }
  if (end - r > 6) {
    chains_tile<4, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    y.source.ahead = nullptr;
    r += 4;
  }
  switch (end - r) {
    case 1: return chains_tile<1, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    case 2: return chains_tile<2, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    case 3: return chains_tile<3, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    case 4: return chains_tile<4, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
    case 5: return chains_tile<5, kVecs, is_whole, is_full>(b, y, r, lane, lanes);
  }
}

template <bool is_full, class T>
inline void chains_lanes_of(const ChainBlock& b, const TurnedBlock<T>& y, int64_t begin, int64_t end, int64_t lanes) {
  if (lanes == kWide) return chains_rows<2, true, is_full>(b, y, begin, end, 0, 16);
  if (lanes >= 16) chains_rows<1, true, is_full>(b, y, begin, end, 0, 16);
  if (lanes % 16) chains_rows<1, false, is_full>(b, y, begin, end, lanes / 16 * 16, lanes % 16);
}

template <class T>
inline void chains_lanes(const ChainBlock& b, const TurnedBlock<T>& y, int64_t begin, int64_t end, int64_t lanes) {
  if (b.pairs == kBlockPairs)
    chains_lanes_of<true>(b, y, begin, end, lanes);
  else
    chains_lanes_of<false>(b, y, begin, end, lanes);
}

template <class T>
inline Packed<T> pairs_from(const Packed<T>& b, int64_t pair) {
  const int64_t offset = pair * b.stride;
  return {b.at + offset, b.stride, b.ahead ? b.ahead + offset : nullptr};
}

// Scores of rows [begin, end) with a block of keys. The rows of a tile take all of head_dim in turn, so that their sums stay in L1.
template <class T>
inline void chains_keys(const uint16_t* queries, int64_t stride, const Packed<T>& keys, int64_t dim, float* scores, int64_t begin,
                        int64_t end) {
  constexpr int64_t kTogether = 4;  // blocks of 32 along head_dim
  alignas(64) Turned turned[kTogether];
  for (int64_t from = 0; from < dim; from += kTogether * kBlock) {
    const int64_t to = smaller(dim, from + kTogether * kBlock);
    const auto pairs = [&](int64_t d) { return smaller(kBlockPairs, (dim - d) / 2); };
    for (int64_t d = from; d < to; d += kBlock)
      turn(pairs_from(keys, d / 2), pairs(d), 0, kWide, turned[(d - from) / kBlock]);
    for (int64_t r = begin, next; r < end; r = next) {
      next = end - r > 8 ? r + 6 : end;
      for (int64_t d = from; d < to; d += kBlock) {
        TurnedBlock<T> block{turned[(d - from) / kBlock], pairs_from(keys, d / 2), 0};
        if (r > begin) block.source.ahead = nullptr;
        chains_lanes(ChainBlock{queries + d, stride, scores, kScoreStride, pairs(d), d == 0}, block, r, next, kWide);
      }
    }
  }
}

// Adds a block of values by their weights, the rows of `b`.
template <class T>
inline void chains_values(ChainBlock b, const Packed<T>& values, int64_t begin, int64_t end, int64_t dim) {
  alignas(64) Turned turned;
  for (int64_t lane = 0; lane < dim; lane += kWide, b.out += kWide) {
    const int64_t lanes = smaller(dim - lane, kWide);
    turn(values, b.pairs, lane, lanes, turned);
    chains_lanes(b, TurnedBlock<T>{turned, values, lane}, begin, end, lanes);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
