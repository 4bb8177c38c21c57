// Codes in bit planes (packed/planes.h) as byte vectors: taken apart in registers, or a panel at a time into scratch.
//
// A kernel asks for `code<v>(at, part)`, the four inputs 4v.. of 32 of every output, unsigned. `Planes` policies take them out of
// a chunk with shifts and masks, for few rows; `Bytes` reads what `unpack_panel` has written to scratch, for many.
#pragma once
#include <type_traits>

#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Shifts of 16 bits, right where s > 0, left where it is negative; bits of the neighbouring byte come along.
#if defined(__AVX512F__)
template <int s>
inline I shift_bits(I x) {
  if constexpr (s > 0) return _mm512_srli_epi16(x, s);
  if constexpr (s < 0) return _mm512_slli_epi16(x, -s);
  return x;
}
inline I and_or(I a, I mask, I b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xEA); }  // a & mask | b
inline I mul16(I a, I b) { return _mm512_mullo_epi16(a, b); }
inline I add8(I a, I b) { return _mm512_add_epi8(a, b); }
inline void store_bytes(void* p, I x) { _mm512_store_si512(p, x); }
#else
template <int s>
inline I shift_bits(I x) {
  if constexpr (s > 0) return _mm256_srli_epi16(x, s);
  if constexpr (s < 0) return _mm256_slli_epi16(x, -s);
  return x;
}
inline I and_or(I a, I mask, I b) { return _mm256_or_si256(_mm256_and_si256(a, mask), b); }
inline I mul16(I a, I b) { return _mm256_mullo_epi16(a, b); }
inline I add8(I a, I b) { return _mm256_add_epi8(a, b); }
inline void store_bytes(void* p, I x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }
#endif

// acc plus the sums of pairs of int16 products.
#if defined(__AVX512VNNI__)
inline I mac16(I acc, I a, I b) { return _mm512_dpwssd_epi32(acc, a, b); }
#elif defined(__AVXVNNI__)
inline I mac16(I acc, I a, I b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
#else
inline I mac16(I acc, I a, I b) { return V::iadd(acc, madd16(a, b)); }
#endif

// Calls body(std::integral_constant<int, v>{}) for v = first .. last - 1.
template <int first, int last, class Body>
__attribute__((always_inline)) inline void each(Body&& body) {
  if constexpr (first < last) {
    body(std::integral_constant<int, first>{});
    each<first + 1, last>(body);
  }
}

template <class P>
struct Planes {
  static constexpr int64_t kChunk = P::kChunk;
  static constexpr bool kIsScaled = false;

  // Field v / b of a vector of a plane of b bits, moved to bit `to`.
  template <int b, int v, int to>
  static I field(const uint8_t* plane, int part) {
    return shift_bits<b * (v / b) - to>(load_bytes(plane + 64 * (v % b) + 4 * V::kLanes * part));
  }

  template <int v>
  static I code(const uint8_t* chunk, int part) {
    const I low = field<P::kLow, v, 0>(chunk, part), low_bits = bytes_of((1 << P::kLow) - 1);
    if constexpr (P::kHigh == 0) {
      return and_bits(low, low_bits);
    } else {
      const I high = field<P::kHigh, v, P::kLow>(chunk + 64 * P::kLow, part);
      return and_or(low, low_bits, and_bits(high, bytes_of(((1 << P::kHigh) - 1) << P::kLow)));
    }
  }
};

constexpr int64_t kByteChunk = 512;  // 32 inputs of a panel

template <bool is_scaled>
struct Bytes {
  static constexpr int64_t kChunk = kByteChunk;
  static constexpr bool kIsScaled = is_scaled;  // codes have been multiplied with their sub-scales

  template <int v>
  static I code(const uint8_t* chunk, int part) {
    return load_bytes(chunk + 64 * v + 4 * V::kLanes * part);
  }
};

template <class P>
inline void unpack_chunk(const uint8_t* chunk, uint8_t* bytes) {
  each<0, 8>([&](auto v) {
    for (int p = 0; p < kParts; ++p) store_bytes(bytes + 64 * v + 4 * V::kLanes * p, Planes<P>::template code<v>(chunk, p));
  });
}

// Sub-scales of group g of a panel's record, int32.
template <class P>
inline I scale_of(const uint8_t* record, int g, int part) {
  const uint8_t* at = record + P::kScalesAt + 16 * g + V::kLanes * part;
  if constexpr (P::kPairs) return and_bits(widen_u8(at), V::ibroadcast(15));
  if constexpr (P::kSigned) return widen_i8(reinterpret_cast<const int8_t*>(at));
  return widen_u8(at);
}

// The same as factors of sums of a chunk: without VNNI in both int16 halves of a lane.
template <class P>
inline I scale_factor(const uint8_t* record, int g, int part) {
  const I scale = scale_of<P>(record, g, part);
  return kVnni || P::kSigned ? scale_lanes(scale) : V::ior(scale, V::template shl<16>(scale));
}

// Whether a zero point is taken off where a sub-block's sum starts, at -zero * (sum of its inputs).
template <class P>
constexpr bool kStarts = kVnni && P::kZero != 0;

// What a tile needs of the sums of a row's inputs: where sums start, int32, one per group, or with scaled codes one in all; or
// int16 sums of groups, two to a dword.
template <class P, class Codes>
inline void prepare_side(const int32_t* sums, int32_t* side) {
  if constexpr (kStarts<P> && Codes::kIsScaled) {
    side[0] = 0;
    for (int i = 0; i < 16; ++i) side[0] -= 128 * sums[i];
  } else if constexpr (kStarts<P>) {
    for (int i = 0; i < 16; ++i) side[i] = -P::kZero * sums[i];
  } else {
    const __m128i* p = reinterpret_cast<const __m128i*>(sums);
    __m128i low = _mm_packs_epi32(_mm_loadu_si128(p), _mm_loadu_si128(p + 1));
    __m128i high = _mm_packs_epi32(_mm_loadu_si128(p + 2), _mm_loadu_si128(p + 3));
    if constexpr (P::kGroup == 32) {
      const __m128i ones = _mm_set1_epi16(1);
      low = _mm_packs_epi32(_mm_madd_epi16(low, ones), _mm_madd_epi16(high, ones));
    }
    _mm_store_si128(reinterpret_cast<__m128i*>(side), low);
    if constexpr (P::kGroup == 16) _mm_store_si128(reinterpret_cast<__m128i*>(side) + 1, high);
  }
}

// Minima (of formats with a zero point: sub-scales) of groups 2 * pair and 2 * pair + 1 as int16, side by side.
template <class P>
inline I mins_of(const uint8_t* record, int pair, int part) {
  const uint8_t* first = record + (P::kMin && !P::kPairs ? P::kMinsAt : P::kScalesAt) + 32 * pair + V::kLanes * part;
#if defined(__AVX512F__)
  const auto load = [](const uint8_t* p) { return P::kMin ? widen_u8(p) : widen_i8(reinterpret_cast<const int8_t*>(p)); };
  I low = load(first), high = V::template shl<16>(load(first + 16));
  if constexpr (!P::kMin) low = and_bits(low, V::ibroadcast(0xFFFF));
  const I both = V::ior(low, high);
  return P::kPairs ? shift_bits<4>(both) : both;
#else
  const auto load = [](const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); };
  const __m128i both = _mm_unpacklo_epi8(load(first), load(first + 16));
  if constexpr (!P::kMin) return _mm256_cvtepi8_epi16(both);
  return P::kPairs ? shift_bits<4>(_mm256_cvtepu8_epi16(both)) : _mm256_cvtepu8_epi16(both);
#endif
}

constexpr int kPanelMins = 8 * 16;

template <class P>
inline void unpack_mins(const uint8_t* record, int32_t* mins) {
  if constexpr (!kStarts<P>)
    for (int pair = 0; pair < 128 / P::kGroup; ++pair)
      for (int p = 0; p < kParts; ++p) store_ints(mins + 16 * pair + V::kLanes * p, mins_of<P>(record, pair, p));
}

// A block of codes times their sub-scales, where that fits a byte: unsigned; of a format with a zero point 128 - scale * (code - zero).
template <class P>
inline void unpack_scaled(const uint8_t* record, uint8_t* bytes) {
  for (int g = 0; g < 16; ++g)
    for (int p = 0; p < kParts; ++p) {
      const I one = scale_of<P>(record, g, p), lanes = V::ior(and_bits(one, V::ibroadcast(0xFFFF)), V::template shl<16>(one));
      const uint8_t* chunk = record + g / 2 * P::kChunk;
      const auto put = [&](auto v) {
        const I code = Planes<P>::template code<v>(chunk, p);
        I scaled = mul16(code, lanes);  // of unsigned factors no product reaches the byte above
        if constexpr (P::kZero != 0) {
          const I low_bytes = words_of(0xFF);
          const I even = mul16(and_bits(code, low_bytes), lanes), odd = mul16(and_bits(code, words_of(0xFF00)), lanes);
          const I product = V::ior(and_bits(even, low_bytes), odd);
          static_assert(P::kZero == 4, "shifted by two");
          I zero = and_bits(V::template shl<2>(one), V::ibroadcast(0xFF));
          zero = V::ior(zero, V::template shl<8>(zero));
          zero = V::ior(zero, V::template shl<16>(zero));
          scaled = add8(V::ixor(product, bytes_of(0xFF)), add8(zero, bytes_of(129)));  // -product = ~product + 1
        }
        store_bytes(bytes + 256 * g + 64 * (v % 4) + 4 * V::kLanes * p, scaled);
      };
      if (g % 2 == 0)
        each<0, 4>(put);
      else
        each<4, 8>(put);
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
