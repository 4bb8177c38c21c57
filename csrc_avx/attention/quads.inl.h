// Operands of dot32 by VDPBF16PS: rows, keys and values as bf16 in quads.
//
// VDPBF16PS adds two products to a lane, rounding after each: first that of the high halves, then that of the low ones. With element
// k in the high half and k + 2 in the low one it takes two steps of a chain of dot32. A *quad* is four neighbouring elements
// k .. k + 3 as two such words, (k + 2, k) of the even chain and (k + 3, k + 1) of the odd one; of keys and values, it is the
// pair rows 2 i and 2 i + 1 of a page.
#pragma once
#include "attention/segment.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;  // 16 lanes

constexpr int64_t kWide = 32;                  // lanes that are turned together
constexpr int64_t kQuadWords = 2 * kWide;      // of a turned quad: the even words, then the odd ones
constexpr int64_t kBlockQuads = kBlockPairs / 2;
using Turned = uint32_t[kBlockQuads * kQuadWords];

// 32 values to bf16, every four of them as a quad: 2 0 3 1.
inline __m512i quads_of(__m512 low, __m512 high) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11));
  return _mm512_shuffle_epi8((__m512i)_mm512_cvtne2ps_pbh(high, low), order);
}

// Bytes of the bf16 of 0 .. 127 and of the numbers E4M3, by code; and in which order two pair rows of codes give two rows of words.
struct CodeTables {
  uint8_t low[2][128] = {}, high[2][128] = {}, even[64] = {}, odd[64] = {};

  constexpr void set(bool is_e4m3, int code, int n, int power) {  // n 2^power
    int e = 0;
    while (n >> (e + 1)) ++e;
    const int bits = (127 + power + e) << 7 | ((n << (7 - e)) & 0x7F);
    low[is_e4m3][code] = static_cast<uint8_t>(bits & 0xFF);
    high[is_e4m3][code] = static_cast<uint8_t>(bits >> 8);
  }
  constexpr CodeTables() {
    for (int n = 1; n < 128; ++n) {
      set(false, n, n, 0);
      set(true, n, n < 8 ? n : 8 + n % 8, n < 8 ? -9 : n / 8 - 10);
    }
    // Tokens 0 .. 15 in the low eight bytes of each 16, as unpacking to words takes them; 64 + n is the first row's byte n.
    for (int t = 0; t < 32; ++t) {
      const int at = t % 16 / 4 * 16 + t / 16 * 8 + t % 4 * 2;
      even[at] = static_cast<uint8_t>(2 * t);
      even[at + 1] = static_cast<uint8_t>(64 + 2 * t);
      odd[at] = static_cast<uint8_t>(2 * t + 1);
      odd[at + 1] = static_cast<uint8_t>(64 + 2 * t + 1);
    }
  }
};
alignas(64) inline constexpr CodeTables kCodes;

// 64 codes to bf16, exactly; what is no code (-128, NaN) gives a number. Places in tables are the low seven bits.
template <class T>
inline void widen_codes(__m512i codes, uint32_t* low_lanes, uint32_t* high_lanes) {
  constexpr bool is_e4m3 = std::is_same_v<T, E4M3>;
  const uint8_t *lows = kCodes.low[is_e4m3], *highs = kCodes.high[is_e4m3];
  const __m512i n = is_e4m3 ? codes : _mm512_abs_epi8(codes);
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(lows), n, _mm512_load_si512(lows + 64));
  const __m512i size = _mm512_permutex2var_epi8(_mm512_load_si512(highs), n, _mm512_load_si512(highs + 64));
  const __m512i high = _mm512_or_si512(size, _mm512_and_si512(codes, _mm512_set1_epi8(INT8_MIN)));
  _mm512_storeu_si512(low_lanes, _mm512_unpacklo_epi8(low, high));
  _mm512_storeu_si512(high_lanes, _mm512_unpackhi_epi8(low, high));
}

// Turns `pairs` pair rows for kWide lanes from `lane` on, of which `lanes` are there; the others come out as zeros.
template <class T>
inline void turn(const Packed<T>& view, int64_t pairs, int64_t lane, int64_t lanes, uint32_t* to) {
  const __mmask64 mask = lanes >= kWide ? ~__mmask64{0} : (__mmask64{1} << (2 * lanes)) - 1;
  const __m512i even = _mm512_load_si512(kCodes.even), odd = _mm512_load_si512(kCodes.odd);
  for (int64_t i = 0; 2 * i < pairs; ++i, to += 2 * kWide) {
    const T* at = view.at + 2 * i * view.stride + 2 * lane;
    const __m512i first = _mm512_maskz_loadu_epi8(mask, at);
    __m512i second = _mm512_setzero_si512();
    if (2 * i + 1 < pairs) second = _mm512_maskz_loadu_epi8(mask, at + view.stride);
    widen_codes<T>(_mm512_permutex2var_epi8(second, even, first), to, to + 16);
    widen_codes<T>(_mm512_permutex2var_epi8(second, odd, first), to + kWide, to + kWide + 16);
  }
}

inline void turn(const Packed<BF16>& view, int64_t pairs, int64_t lane, int64_t lanes, uint32_t* to) {
  constexpr __mmask32 kHigh = 0xAAAAAAAA;
  for (int64_t i = 0; 2 * i < pairs; ++i, to += 2 * kWide) {
    const BF16* at = view.at + 2 * i * view.stride + 2 * lane;
    for (int64_t v = 0; v < kWide; v += 16) {
      const V::M mask = lanes - v >= 16 ? static_cast<V::M>(0xFFFF) : V::first(static_cast<int>(larger(lanes - v, 0)));
      const __m512i first = _mm512_maskz_loadu_epi32(mask, at + 2 * v);
      const __m512i second =
          2 * i + 1 < pairs ? _mm512_maskz_loadu_epi32(mask, at + view.stride + 2 * v) : _mm512_setzero_si512();
      _mm512_storeu_si512(to + v, _mm512_mask_blend_epi16(kHigh, second, _mm512_slli_epi32(first, 16)));
      _mm512_storeu_si512(to + kWide + v, _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(second, 16), first));
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
