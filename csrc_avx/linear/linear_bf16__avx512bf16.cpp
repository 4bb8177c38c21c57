// linear_bf16 at avx512bf16: dot32 by VDPBF16PS, two steps of a chain at a time, the contract's bits.
//
// The instruction adds two products to a lane, rounding after each: first that of the high halves, then that of the low ones. A *quad*
// is four neighbouring inputs k .. k + 3 as the words (k + 2, k) of the even chain and (k + 3, k + 1) of the odd one, low half
// first. Inputs of rows are turned to quads once for many panels; weights lie as pair rows (k, k + 1) of 16 outputs, and two of
// them become a quad in registers, by ports that do not multiply.
//
// Rows come in blocks and inputs in chunks: a chunk of two panels stays in L1 while the block's rows stream past it, in tiles whose
// chains stay in registers. Sums wait in L1 or L2 between blocks of 32 inputs, which is exact: the order adds one after the other.
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kTileRows = 6, kTilePanels = 2;  // 24 chains
constexpr int64_t kRecord = record_bytes(PackedKind::bf16, 0);
constexpr int64_t kQuads = 8, kQuadBytes = kRecord / kQuads;
constexpr int64_t kBlockRows = 16 * kTileRows;
constexpr int64_t kSums = 16 * kBlockRows;                      // of a unit: rows x panels, 16 of each
constexpr int64_t kChunk = 256, kStreamChunk = 16 << 10;        // inputs; few rows read a panel in one run
constexpr int64_t kPad = 32;                                    // rows of a chunk fall into different cache sets
static_assert(kSums * 64 + kBlockRows * (kChunk + kPad) * 2 <= kScratchBytes, "scratch is per thread");
static_assert(kSums * 64 + kTileRows * (kStreamChunk + kPad) * 2 <= kScratchBytes, "scratch is per thread");

// Inputs of a block's rows in quads, a row every `stride`; records of the chunk; bytes between panels.
struct Chunk {
  const uint16_t* x;
  int64_t stride, records, panel_bytes;
};

// How far ahead weights are asked for; tiles that read the same ones take turns.
struct Coming {
  int64_t distance, turn, turns;
};

// Outputs of a tile: [C][row_count][16].
struct Sums {
  float* at;
  int64_t row_count;
};

inline __m512bh word_of(const uint16_t* x) {
  float word;
  std::memcpy(&word, x, sizeof word);
  return (__m512bh)_mm512_set1_ps(word);
}

// Inputs [from, from + count), whole records, of the rows of a span to quads.
inline void turn_rows(const LinearArgs& a, const Span& s, int64_t from, int64_t count, uint16_t* to) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11));
  for (int64_t r = 0; r < s.rows; ++r, to += count + kPad) {
    const uint16_t* x = static_cast<const uint16_t*>(a.x) + (s.row + r) * a.ldx + from;
    for (int64_t i = 0; i < count; i += 32)
      _mm512_storeu_si512(to + i, _mm512_shuffle_epi8(_mm512_loadu_si512(x + i), order));
  }
}

inline void turn_weights(const uint8_t* pair_rows, __m512i* even, __m512i* odd) {
  constexpr __mmask32 kHigh = 0xAAAAAAAA;
  const __m512i first = _mm512_loadu_si512(pair_rows), second = _mm512_loadu_si512(pair_rows + 64);
  *even = _mm512_mask_blend_epi16(kHigh, second, _mm512_slli_epi32(first, 16));
  *odd = _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(second, 16), first);
}

// R rows x C panels of a chunk, added to their sums. Weights are asked for a few lines at a time: a record's lines at once would fill
// the queue of misses and hold up the loads behind them.
template <int R, int C>
inline void tile(const Chunk& k, const uint16_t* x, const uint8_t* weight, Coming coming, Sums sums) {
  for (int64_t b = 0; b < k.records; ++b, x += 32, weight += kRecord) {
    F even[R][C], odd[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) even[r][c] = odd[r][c] = V::zero();
#pragma GCC unroll 1
    for (int64_t i = 0; i < kQuads; ++i) {
      const uint8_t* quad = weight + i * kQuadBytes;
      if (coming.turn-- == 0) {
        coming.turn = coming.turns - 1;
        for (int c = 0; c < C; ++c)
          for (int64_t line = 0; line < kQuadBytes; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(quad + c * k.panel_bytes + coming.distance + line), _MM_HINT_T0);
      }
      __m512i evens[C], odds[C];
      for (int c = 0; c < C; ++c) turn_weights(quad + c * k.panel_bytes, evens + c, odds + c);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const uint16_t* words = x + r * k.stride + 4 * i;
        const __m512bh of_even = word_of(words), of_odd = word_of(words + 2);
        for (int c = 0; c < C; ++c) {
          even[r][c] = _mm512_dpbf16_ps(even[r][c], of_even, (__m512bh)evens[c]);
          odd[r][c] = _mm512_dpbf16_ps(odd[r][c], of_odd, (__m512bh)odds[c]);
        }
      }
    }
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        float* at = sums.at + (c * sums.row_count + r) * 16;
        V::store(at, V::add(V::load(at), V::add(even[r][c], odd[r][c])));
      }
  }
}

template <int C, int R = kTileRows>
inline void tile_of(int64_t rows, const Chunk& k, const uint16_t* x, const uint8_t* weight, Coming coming, Sums sums) {
  constexpr int kLeast = C > 1 ? 3 : 1;  // seven rows and more, in even tiles, are three and more to a tile
  if constexpr (R > kLeast) {
    if (rows < R) return tile_of<C, R - 1>(rows, k, x, weight, coming, sums);
  }
  tile<R, C>(k, x, weight, coming, sums);
}

// All rows of a block times C panels of a chunk, in tiles as even as can be.
template <int C>
inline void tiles_of_rows(int64_t rows, const Chunk& k, const uint8_t* weight, int64_t distance, float* sums) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = rows * t / tiles, count = rows * (t + 1) / tiles - first;
    tile_of<C>(count, k, k.x + first * k.stride, weight, Coming{distance, t, tiles}, Sums{sums + first * 16, rows});
  }
}

// Rows x panels whose sums fit scratch. Panels of a chunk are asked for while those before them are multiplied.
inline void unit(const LinearArgs& a, const Span& s, int64_t panel_bytes, float* sums) {
  auto* x = reinterpret_cast<uint16_t*>(sums + kSums * 16);
  std::memset(sums, 0, static_cast<size_t>(s.rows * s.panels * 16) * sizeof(float));
  const bool is_stream = s.rows <= kTileRows;
  const int64_t inputs = round_up(a.k, 32), step = is_stream ? kStreamChunk : kChunk;
  for (int64_t from = 0; from < inputs; from += step) {
    const int64_t count = inputs - from < step ? inputs - from : step;
    turn_rows(a, s, from, count, x);
    const Chunk chunk{x, count + kPad, count / 32, panel_bytes};
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + s.panel * panel_bytes + from / 32 * kRecord;
    int64_t p = 0;
    for (; !is_stream && p + kTilePanels <= s.panels; p += kTilePanels) {
      const bool is_last = p + 2 * kTilePanels > s.panels;  // then the next chunk of the first panels comes
      const int64_t distance = is_last ? chunk.records * kRecord - p * panel_bytes : kTilePanels * panel_bytes;
      tiles_of_rows<kTilePanels>(s.rows, chunk, weight + p * panel_bytes, distance, sums + p * s.rows * 16);
    }
    for (; p < s.panels; ++p)
      tiles_of_rows<1>(s.rows, chunk, weight + p * panel_bytes, kStreamAhead, sums + p * s.rows * 16);
  }
  for (int64_t p = 0; p < s.panels; ++p)
    for (int64_t r = 0; r < s.rows; ++r) finish<V>(a, s.row + r, (s.panel + p) * kPanel, sums + (p * s.rows + r) * 16);
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::bf16, 0, a.k);
  run_units(a, step, lane, bytes, kBlockRows, kTilePanels, [&](const Span& s) {
    const int64_t most = kSums / s.rows / kTilePanels * kTilePanels, end = s.panel + s.panels;
    for (int64_t p = s.panel; p < end; p += most)
      unit(a, Span{s.row, s.rows, p, end - p < most ? end - p : most}, bytes, static_cast<float*>(lane.scratch));
  });
}

}  // namespace octavo::OCTAVO_ISA_NS
