// Weights with integer sub-scales in blocks of 256 inputs (K-quants) on AMX tiles: TDPBSSD, exact int32 sums.
//
// A sub-scale every 16 or 32 inputs would leave a tile three quarters or half empty and C to be scaled after each product. Instead
// codes are multiplied with their sub-scales when they are unpacked. Of Q2_K and Q3_K a product fits a byte; of the others it is
// 128 * high + low, two int8: two products per code, each over 256 inputs at the full depth of a tile, and C is folded once per 256.
// Two row tiles meet two columns: two panels, or the high and low bytes of one.
//
// Minima meet the sums of inputs in one product of bfloat16, a sum as its multiple of 32 and what is left of it: both exact, as
// is their float32 sum (below 2^24). Folding step t - 1 runs beside the products of step t.
#pragma once
#include "exec/ask.h"
#include "linear/amx_units.inl.h"
#include "linear/planes.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kBlockRows = 512;  // of a unit
constexpr int64_t kBlockPanels = 16;

struct BlockWork {
  alignas(64) int32_t sums[2][2][2][16][16];          // C of a step: [column][row tile]
  alignas(64) float mins_sums[2][2][2][16][16];       // C of minima: [panel][row tile]
  alignas(64) uint8_t codes[2][256 / 4][64];          // B of two columns
  alignas(64) uint32_t mins[2][16][16];               // B of minima
  alignas(64) float d[2][16], low[2][16];
  alignas(64) uint32_t sides[kBlockRows][16];         // A of minima
  alignas(64) float scales[kBlockRows];
  alignas(64) int8_t x[kBlockRows / 16][4][16][64];   // A
  alignas(64) float acc[kBlockPanels][kBlockRows][16];
};
static_assert(sizeof(BlockWork) <= kScratchBytes, "scratch is per thread");

// 0-3 C[column][row tile], then of minima, 4-5 A, 6-7 B.
#define OCTAVO_BLOCK_PART(i)                                     \
  do {                                                           \
    _tile_loadd(6, w->codes[0][16 * (i)], 64);                   \
    _tile_loadd(4, w->x[t][i][0], 64);                           \
    _tile_dpbssd(0, 4, 6);                                       \
    if (two_columns) {                                           \
      _tile_loadd(7, w->codes[1][16 * (i)], 64);                 \
      _tile_dpbssd(2, 4, 7);                                     \
    }                                                            \
    if (two_row_tiles) {                                         \
      _tile_loadd(5, w->x[t + 1][i][0], 64);                     \
      _tile_dpbssd(1, 5, 6);                                     \
      if (two_columns) _tile_dpbssd(3, 5, 7);                    \
    }                                                            \
  } while (0)

// Sums of row tiles t and, perhaps, t + 1.
template <bool two_row_tiles, bool two_columns, int min_panels>
inline void block_products(int64_t t, BlockWork* w, int at) {
  auto& sums = w->sums[at];
  before_tiles();
  _tile_zero(0);
  if (two_columns) _tile_zero(2);
  if (two_row_tiles) _tile_zero(1);
  if (two_row_tiles && two_columns) _tile_zero(3);
  OCTAVO_BLOCK_PART(0);
  OCTAVO_BLOCK_PART(1);
  OCTAVO_BLOCK_PART(2);
  OCTAVO_BLOCK_PART(3);
  _tile_stored(0, sums[0][0], 64);
  if (two_row_tiles) _tile_stored(1, sums[0][1], 64);
  if (two_columns) _tile_stored(2, sums[1][0], 64);
  if (two_row_tiles && two_columns) _tile_stored(3, sums[1][1], 64);
  if constexpr (min_panels > 0) {
    auto& mins = w->mins_sums[at];
    _tile_loadd(6, w->mins[0], 64);
    _tile_loadd(4, w->sides[16 * t], 64);
    _tile_zero(0);
    _tile_dpbf16ps(0, 4, 6);
    if (min_panels > 1) {
      _tile_loadd(7, w->mins[1], 64);
      _tile_zero(2);
      _tile_dpbf16ps(2, 4, 7);
    }
    if (two_row_tiles) {
      _tile_loadd(5, w->sides[16 * t + 16], 64);
      _tile_zero(1);
      _tile_dpbf16ps(1, 5, 6);
      if (min_panels > 1) {
        _tile_zero(3);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, mins[0][0], 64);
    if (two_row_tiles) _tile_stored(1, mins[0][1], 64);
    if (min_panels > 1) _tile_stored(2, mins[1][0], 64);
    if (two_row_tiles && min_panels > 1) _tile_stored(3, mins[1][1], 64);
  }
  before_tiles();
}
#undef OCTAVO_BLOCK_PART

// A block of sub_scale * (code - zero) = 128 * high + low, low in [-64, 63].
template <class P>
inline void unpack_products(const uint8_t* record, BlockWork* w) {
  const I low_bytes = words_of(0xFF), seven = words_of(127), half = words_of(64);
  for (int sub = 0; sub < 8; ++sub)
    each<0, 8>([&](auto v) {
      const I one = scale_of<P>(record, (32 * sub + 4 * v) / P::kGroup, 0);
      const I lanes = V::ior(and_bits(one, V::ibroadcast(0xFFFF)), V::template shl<16>(one));
      const I code = add8(Planes<P>::template code<v>(record + sub * P::kChunk, 0), bytes_of(static_cast<uint8_t>(-P::kZero)));
      const I even = _mm512_add_epi16(mul16(_mm512_srai_epi16(shift_bits<-8>(code), 8), lanes), half);
      const I odd = _mm512_add_epi16(mul16(_mm512_srai_epi16(code, 8), lanes), half);
      const int at = 8 * sub + v;
      store_bytes(w->codes[0][at], and_or(_mm512_srai_epi16(even, 7), low_bytes, shift_bits<-8>(_mm512_srai_epi16(odd, 7))));
      store_bytes(w->codes[1][at],
                  add8(and_or(even, seven, shift_bits<-8>(and_bits(odd, seven))), bytes_of(static_cast<uint8_t>(-64))));
    });
}

// What one block of panel c of those that share a pass needs.
template <class P>
inline void unpack_panel(const uint8_t* record, int c, BlockWork* w) {
  if constexpr (P::kFolds) {
    unpack_scaled<P>(record, w->codes[c][0]);
    if constexpr (P::kZero != 0)  // 128 - product -> -product
      for (auto& row : w->codes[c]) store_bytes(row, xor_bits(load_bytes(row), bytes_of(128)));
  } else {
    unpack_products<P>(record, w);
  }
  V::store(w->d[c], half_part(record + P::kHalvesAt, 0));
  if constexpr (P::kMin) {
    V::store(w->low[c], half_part(record + P::kHalvesAt + 32, 0));
    for (int i = 0; i < 16; ++i) {
      const uint8_t* of = record + (P::kPairs ? P::kScalesAt : P::kMinsAt) + 16 * (P::kGroup == 16 ? i : i / 2);
      const I min = P::kPairs ? _mm512_srli_epi32(widen_u8(of), 4) : widen_u8(of);
      const I bits = V::bits(V::cvt_f32(min));  // bfloat16 in the upper half
      _mm512_store_si512(w->mins[c][i], V::ior(bits, _mm512_srli_epi32(bits, 16)));
    }
  }
}

// Rows of a unit over one block of inputs, as A tiles, with their scales and, for minima, sums.
template <class P>
inline void copy_block(const LinearArgs& a, const Span& s, int64_t block, BlockWork* w) {
  const int8_t* x = static_cast<const int8_t*>(a.x) + s.row * a.ldx + 256 * block;
  for (int64_t r = 0; r < s.rows; ++r, x += a.ldx) {
    ask_for(x + 4 * a.ldx, 256);  // addresses beyond the inputs are harmless
    for (int i = 0; i < 4; ++i) _mm512_store_si512(w->x[r / 16][i][r % 16], load_bytes(x + 64 * i));
    const int64_t entry = (s.row + r) * a.lds + block;
    w->scales[r] = a.scales[entry];
    if constexpr (P::kMin) {
      I sums = load_bytes(a.sums + 16 * entry);  // of 16 inputs
      if constexpr (P::kGroup == 32)             // of 32, in even lanes
        sums = _mm512_maskz_add_epi32(0x5555, sums, _mm512_srli_epi64(sums, 32));
      const I left = V::bits(V::cvt_f32(and_bits(sums, V::ibroadcast(31))));
      const I most = V::bits(V::cvt_f32(and_bits(sums, V::ibroadcast(~31))));
      _mm512_store_si512(w->sides[r], V::ior(left, _mm512_srli_epi32(most, 16)));
    }
  }
}

// Row tile t's sums of a step -> acc of panel c of the pass, `panel` of the unit.
template <class P>
inline void fold_block(int64_t t, int tile, int c, int64_t panel, bool is_first, BlockWork* w, int at) {
  const F d = V::load(w->d[c]), low = P::kMin ? V::load(w->low[c]) : V::zero();
  const auto* sums = w->sums[at][P::kFolds ? c : 0][tile];
  const auto* lows = w->sums[at][1][tile];
  const auto* mins = w->mins_sums[at][c][tile];
  const float* scales = w->scales + 16 * t;
  float* acc = w->acc[panel][16 * t];
#pragma GCC unroll 4
  for (int r = 0; r < 16; ++r) {
    const F s = V::broadcast(scales[r]);
    I isum = load_bytes(sums[r]);
    if constexpr (!P::kFolds) isum = V::iadd(V::template shl<7>(isum), load_bytes(lows[r]));
    if constexpr (P::kFolds && P::kZero != 0) isum = V::isub(V::ibroadcast(0), isum);
    F sum = V::fma(V::cvt_f32(isum), V::mul(s, d), is_first ? V::zero() : V::load(acc + 16 * r));
    if constexpr (P::kMin) sum = V::fma(V::load(mins[r]), V::neg(V::mul(s, low)), sum);
    V::store(acc + 16 * r, sum);
  }
}

// A block of one or two panels, unpacked, for all rows of a unit.
template <class P, bool two_columns>
inline void block_rows(const LinearArgs& a, const Span& s, int64_t panel, int panels, bool is_first, bool is_last, BlockWork* w) {
  constexpr int kMins = P::kMin ? (P::kFolds && two_columns ? 2 : 1) : 0;
  const int64_t tiles = (s.rows + 15) / 16;
  const auto fold = [&](int64_t t, int at) __attribute__((always_inline)) {
    for (int c = 0; c < panels; ++c) {
      fold_block<P>(t, 0, c, panel + c, is_first, w, at);
      if (t + 1 < tiles) fold_block<P>(t + 1, 1, c, panel + c, is_first, w, at);
    }
  };
  for (int64_t t = 0; t < tiles; t += 2) {
    const int at = static_cast<int>(t / 2 % 2);
    if (is_last && !a.narrow)
      for (int64_t r = 0; r < 32; ++r) __builtin_prefetch(a.y + (s.row + 16 * t + r) * a.ldy + (s.panel + panel) * kPanel, 1, 3);
    if (t + 1 < tiles)
      block_products<true, two_columns, kMins>(t, w, at);
    else
      block_products<false, two_columns, kMins>(t, w, at);
    if (t > 0) fold(t - 2, at ^ 1);
  }
  fold((tiles - 1) / 2 * 2, static_cast<int>((tiles - 1) / 2 % 2));
  if (is_last)
    for (int c = 0; c < panels; ++c) {
      const int64_t col = (s.panel + panel + c) * kPanel;
      int64_t r = 0;
      for (; r + 16 <= s.rows; r += 16) finish_tile<V, 16, 1>(a, s.row + r, col, w->acc[panel + c][r]);
      for (; r < s.rows; ++r) finish<V>(a, s.row + r, col, w->acc[panel + c][r]);
    }
}

template <class P, PackedKind kind>
inline void run_blocks(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  constexpr int64_t kBytes = record_bytes(kind, 0), kPanels = P::kFolds ? 2 : 1;
  const int64_t blocks = round_up(a.k, 256) / 256, stride = blocks * kBytes;
  auto* w = static_cast<BlockWork*>(lane.scratch);
  run_tile_units(a, step, lane, kBlockRows, kBlockPanels, kPanels, [&](const Span& s) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) config.set(tile, 16, 64);
    const TileScope scope(config);
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + s.panel * stride;
    for (int64_t b = 0; b < blocks; ++b) {
      copy_block<P>(a, s, b, w);
      for (int64_t p = 0; p < s.panels; p += kPanels) {
        const int panels = p + kPanels <= s.panels ? kPanels : 1;
        for (int c = 0; c < panels; ++c) unpack_panel<P>(weight + (p + c) * stride + b * kBytes, c, w);
        if (!P::kFolds || panels == 2)
          block_rows<P, true>(a, s, p, panels, b == 0, b + 1 == blocks, w);
        else
          block_rows<P, false>(a, s, p, panels, b == 0, b + 1 == blocks, w);
      }
    }
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
