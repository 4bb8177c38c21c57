// Integer vectors of the linear kernels: byte codes times int8 inputs, at the width and with the dot instruction of the level.
//
// A vector holds kLanes outputs x 4 inputs. `mac` multiplies unsigned codes with signed inputs:
//   VNNI      VPDPBUSD into int32 (the plain form, never the saturating one)
//   otherwise VPMADDUBSW into int16; the caller keeps sums below 2^15: 8 steps of 4-bit codes reach 8 * 2 * 15 * 127 = 30,480
// Signed codes: VNNI takes code + 128 (one XOR) and the caller subtracts 128 * sum of inputs; otherwise |code| times the input
// with the code's sign: |-128| = 128 stays exact as an unsigned byte and 2 * 128 * 127 = 32,512 still fits int16.
#pragma once
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// gcc 12 puts additions of products off, so that the products of many steps wait in memory; a pinned sum is made at once.
#ifndef OCTAVO_PIN  // tests/emulated has vectors that no register holds
#define OCTAVO_PIN(vector) asm("" : "+v"(vector))
#endif

inline int32_t dword_at(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

#if defined(__AVX512F__)
inline I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
inline void store_ints(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
inline I and_bits(I a, I b) { return _mm512_and_si512(a, b); }
inline I xor_bits(I a, I b) { return _mm512_xor_si512(a, b); }
inline I high_nibbles(I codes, I mask) { return _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask); }
inline I abs8(I x) { return _mm512_abs_epi8(x); }
inline I with_sign8(I x, I s) { return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(s), _mm512_setzero_si512(), x); }
inline I maddubs(I u, I s) { return _mm512_maddubs_epi16(u, s); }
inline I add16(I a, I b) { return _mm512_add_epi16(a, b); }
inline I madd16(I a, I b) { return _mm512_madd_epi16(a, b); }
inline I mul32(I a, I b) { return _mm512_mullo_epi32(a, b); }
inline I widen_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline I widen_i8(const int8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
#if defined(__AVX512VNNI__)
inline I dot4(I acc, I u, I s) { return _mm512_dpbusd_epi32(acc, u, s); }
#endif
#else
inline I load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_ints(int32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
inline I and_bits(I a, I b) { return _mm256_and_si256(a, b); }
inline I xor_bits(I a, I b) { return _mm256_xor_si256(a, b); }
inline I high_nibbles(I codes, I mask) { return _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask); }
inline I abs8(I x) { return _mm256_abs_epi8(x); }
inline I with_sign8(I x, I s) { return _mm256_sign_epi8(x, s); }
inline I maddubs(I u, I s) { return _mm256_maddubs_epi16(u, s); }
inline I add16(I a, I b) { return _mm256_add_epi16(a, b); }
inline I madd16(I a, I b) { return _mm256_madd_epi16(a, b); }
inline I mul32(I a, I b) { return _mm256_mullo_epi32(a, b); }
inline I widen_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
inline I widen_i8(const int8_t* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
#if defined(__AVXVNNI__)
inline I dot4(I acc, I u, I s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
#endif
#endif

inline I bytes_of(uint8_t value) { return V::ibroadcast(static_cast<int32_t>(value * 0x01010101u)); }
inline I words_of(uint16_t value) { return V::ibroadcast(static_cast<int32_t>(value * 0x00010001u)); }
inline I nibbles_of(I pair, bool is_high) { return is_high ? high_nibbles(pair, bytes_of(15)) : and_bits(pair, bytes_of(15)); }
// -(*x << n) in every lane.
template <int n>
inline I less_times(const int32_t* x) {
  return V::isub(V::ibroadcast(0), V::template shl<n>(V::ibroadcast(*x)));
}
inline I inputs_at(const int8_t* x) { return V::ibroadcast(dword_at(x)); }

// Scales of part of a panel, kept apart in the type that the packed layout's flags name.
inline F scale_part(const uint8_t* scales, int32_t flags, int part) {
  if (flags & kScaleBf16) return V::load_bf16(reinterpret_cast<const uint16_t*>(scales) + part * V::kLanes);
  if (flags & kScaleF16) return half_part(scales, part);
  return V::load(reinterpret_cast<const float*>(scales) + part * V::kLanes);
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
inline I mac(I acc, I codes, I x) { return dot4(acc, codes, x); }
inline I widen_sum(I acc) { return acc; }
// Unsigned codes of up to 7 bits, signed codes of 8 (see above), into int32.
inline I mac_wide(I acc, I codes, I x) { return dot4(acc, codes, x); }
inline I mac_signed(I acc, I codes, I x) { return dot4(acc, xor_bits(codes, bytes_of(128)), x); }
// A sum of `mac`s times a sub-scale, added to acc.
inline I mac_scaled(I acc, I sum, I scale) { return V::iadd(acc, mul32(sum, scale)); }
inline I scale_lanes(I scale) { return scale; }
#else
inline I pinned(I sum) {
  OCTAVO_PIN(sum);
  return sum;
}
inline I mac(I acc, I codes, I x) { return pinned(add16(acc, maddubs(codes, x))); }
inline I widen_sum(I acc) { return madd16(acc, words_of(1)); }
inline I mac_wide(I acc, I codes, I x) { return pinned(V::iadd(acc, madd16(maddubs(codes, x), words_of(1)))); }
inline I mac_signed(I acc, I codes, I x) { return mac_wide(acc, abs8(codes), with_sign8(x, codes)); }
inline I mac_scaled(I acc, I sum, I scale) { return V::iadd(acc, madd16(sum, scale)); }
// The scale in both int16 halves of its lane.
inline I scale_lanes(I scale) { return V::ior(and_bits(scale, V::ibroadcast(0xFFFF)), V::template shl<16>(scale)); }
#endif

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
