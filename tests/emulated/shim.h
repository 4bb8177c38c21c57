// AVX-512, VNNI and AMX on a machine that has only AVX2: included before each translation unit of those levels, so that the
// very same kernels run here, bit for bit (see README.md beside this file).
//
// Most AVX-512 intrinsics are SIMDe's (https://github.com/simd-everywhere/simde, MIT), which splits them into AVX2 halves;
// those that its 0.7 releases lack follow below, the AMX tiles in tiles.h. An intrinsic that neither has stops
// the build with "target specific option mismatch" and its name: add it here.
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES 1
#include <immintrin.h>
#include <simde/x86/avx512.h>

#include <cstdint>
#include <cstring>

#include "tiles.h"

namespace octavo_emulated {

using W = simde__m512i;
using P = simde__m512;

inline __m256i half(W a, int i) { return simde__m512i_to_private(a).m256i[i]; }
inline __m256 half(P a, int i) { return simde__m512_to_private(a).m256[i]; }
inline W join(__m256i a, __m256i b) {
  simde__m512i_private r{};
  r.m256i[0] = a;
  r.m256i[1] = b;
  return simde__m512i_from_private(r);
}
inline P join(__m256 a, __m256 b) {
  simde__m512_private r{};
  r.m256[0] = a;
  r.m256[1] = b;
  return simde__m512_from_private(r);
}
template <class T, class Vector>
inline void lanes_of(Vector v, T* out) {
  std::memcpy(out, &v, sizeof v);
}
template <class Vector, class T>
inline Vector vector_of(const T* lanes) {
  Vector v;
  std::memcpy(&v, lanes, sizeof v);
  return v;
}

// -- conversions
inline P cvtph_ps(__m256i a) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
template <int how>
inline __m256i cvtps_ph(P a) {
  return _mm256_set_m128i(_mm256_cvtps_ph(half(a, 1), how), _mm256_cvtps_ph(half(a, 0), how));
}
inline W cvtps_epi32(P a) { return join(_mm256_cvtps_epi32(half(a, 0)), _mm256_cvtps_epi32(half(a, 1))); }
inline W cvttps_epi32(P a) { return join(_mm256_cvttps_epi32(half(a, 0)), _mm256_cvttps_epi32(half(a, 1))); }
inline P cvtepi32_ps(W a) { return join(_mm256_cvtepi32_ps(half(a, 0)), _mm256_cvtepi32_ps(half(a, 1))); }
inline W cvtepu16_epi32(__m256i a) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
inline W cvtepi16_epi32(__m256i a) {
  return join(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1)));
}
inline W cvtepu8_epi32(__m128i a) { return join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8))); }
inline W cvtepi8_epi32(__m128i a) { return join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))); }
inline __m256i cvtepi32_epi16(W a) {  // truncates
  int32_t in[16];
  int16_t out[16];
  lanes_of(a, in);
  for (int i = 0; i < 16; ++i) out[i] = static_cast<int16_t>(in[i]);
  return vector_of<__m256i>(out);
}
inline __m128i cvtepi32_epi8(W a) {  // truncates
  int32_t in[16];
  int8_t out[16];
  lanes_of(a, in);
  for (int i = 0; i < 16; ++i) out[i] = static_cast<int8_t>(in[i]);
  return vector_of<__m128i>(out);
}
inline W cvtepi8_epi16(__m256i a) {
  return join(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1)));
}
// VCVTNEPS2BF16: half to even, denormals to signed zero, NaN to quiet NaN (Intel SDM).
inline simde__m256bh cvtneps_pbh(P a) {
  uint32_t in[16];
  uint16_t out[16];
  lanes_of(a, in);
  for (int i = 0; i < 16; ++i) {
    const uint32_t u = in[i], m = u & 0x7FFFFFFFu;
    out[i] = static_cast<uint16_t>(m > 0x7F800000u   ? (u >> 16) | 0x40u
                                   : m < 0x00800000u ? (u >> 16) & 0x8000u
                                                     : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
  return vector_of<simde__m256bh>(out);
}
// VCVTNE2PS2BF16: the second operand goes to the low half.
inline simde__m512bh cvtne2ps_pbh(P high, P low) {
  const simde__m256bh part[2] = {cvtneps_pbh(low), cvtneps_pbh(high)};
  return vector_of<simde__m512bh>(part);
}

// VDPBF16PS: the product of the high halves, then that of the low ones, each by fma (Intel SDM; measured on two makers' chips).
inline P dpbf16_ps(P c, simde__m512bh a, simde__m512bh b) {
  uint32_t x[16], y[16];
  lanes_of(a, x);
  lanes_of(b, y);
  uint32_t high[2][16], low[2][16];
  for (int i = 0; i < 16; ++i) {
    high[0][i] = x[i] & 0xFFFF0000u, high[1][i] = y[i] & 0xFFFF0000u;
    low[0][i] = x[i] << 16, low[1][i] = y[i] << 16;
  }
  const P sum = simde_mm512_fmadd_ps(vector_of<P>(high[0]), vector_of<P>(high[1]), c);
  return simde_mm512_fmadd_ps(vector_of<P>(low[0]), vector_of<P>(low[1]), sum);
}

// -- arithmetic, compares, extracts
template <int n>
inline W srai_epi32(W a) {
  return join(_mm256_srai_epi32(half(a, 0), n), _mm256_srai_epi32(half(a, 1), n));
}
inline int reduce_add_epi32(W a) {
  int32_t in[16];
  uint32_t sum = 0;
  lanes_of(a, in);
  for (int32_t v : in) sum += static_cast<uint32_t>(v);
  return static_cast<int>(sum);
}
template <int order>
inline P permute_ps(P a) {
  return join(_mm256_permute_ps(half(a, 0), order), _mm256_permute_ps(half(a, 1), order));
}
inline simde__mmask16 cmplt_epi32_mask(W a, W b) { return simde_mm512_cmpgt_epi32_mask(b, a); }
template <int i>
inline __m256 extractf32x8_ps(P a) {
  return half(a, i);
}
template <int i>
inline __m256i extracti64x4_epi64(W a) {
  return half(a, i);
}

// -- masked memory: masked lanes are never touched
inline P maskz_loadu_ps(simde__mmask16 k, const void* p) {
  float lane[16] = {};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) std::memcpy(lane + i, static_cast<const char*>(p) + 4 * i, 4);
  return vector_of<P>(lane);
}
inline void mask_storeu_ps(void* p, simde__mmask16 k, P a) {
  float lane[16];
  lanes_of(a, lane);
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) std::memcpy(static_cast<char*>(p) + 4 * i, lane + i, 4);
}
inline W maskz_loadu_epi32(simde__mmask16 k, const void* p) {
  uint32_t lane[16] = {};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) std::memcpy(lane + i, static_cast<const char*>(p) + 4 * i, 4);
  return vector_of<W>(lane);
}
inline W maskz_loadu_epi8(simde__mmask64 k, const void* p) {
  uint8_t lane[64] = {};
  for (int i = 0; i < 64; ++i)
    if (k >> i & 1) lane[i] = static_cast<const uint8_t*>(p)[i];
  return vector_of<W>(lane);
}
inline __m256i maskz_loadu_epi16(simde__mmask16 k, const void* p) {
  uint16_t lane[16] = {};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) std::memcpy(lane + i, static_cast<const char*>(p) + 2 * i, 2);
  return vector_of<__m256i>(lane);
}
inline void mask_storeu_epi16(void* p, simde__mmask16 k, __m256i a) {
  uint16_t lane[16];
  lanes_of(a, lane);
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) std::memcpy(static_cast<char*>(p) + 2 * i, lane + i, 2);
}

// -- VNNI: the plain (wrapping) forms. Four products of unsigned and signed bytes per int32 lane.
template <class Vector>
inline Vector dpbusd(Vector acc, Vector u, Vector s) {
  constexpr int kLanes = sizeof(Vector) / 4;
  int32_t sum[kLanes];
  uint8_t a[4 * kLanes];
  int8_t b[4 * kLanes];
  lanes_of(acc, sum);
  lanes_of(u, a);
  lanes_of(s, b);
  for (int i = 0; i < kLanes; ++i) {
    uint32_t total = static_cast<uint32_t>(sum[i]);
    for (int j = 0; j < 4; ++j) total += static_cast<uint32_t>(a[4 * i + j] * b[4 * i + j]);
    sum[i] = static_cast<int32_t>(total);
  }
  return vector_of<Vector>(sum);
}

// Two products of int16 per int32 lane; _mm256_madd_epi16 gives their sums, wrapping as here.
inline __m256i dpwssd(__m256i acc, __m256i a, __m256i b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
inline W dpwssd(W acc, W a, W b) {
  return join(dpwssd(half(acc, 0), half(a, 0), half(b, 0)), dpwssd(half(acc, 1), half(a, 1), half(b, 1)));
}

}  // namespace octavo_emulated

#define _mm512_cvtph_ps(a) octavo_emulated::cvtph_ps(a)
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(a, how) octavo_emulated::cvtps_ph<(how)>(a)
#define _mm512_cvtps_epi32(a) octavo_emulated::cvtps_epi32(a)
#define _mm512_cvttps_epi32(a) octavo_emulated::cvttps_epi32(a)
#define _mm512_cvtepi32_ps(a) octavo_emulated::cvtepi32_ps(a)
#define _mm512_cvtepu16_epi32(a) octavo_emulated::cvtepu16_epi32(a)
#define _mm512_cvtepi16_epi32(a) octavo_emulated::cvtepi16_epi32(a)
#define _mm512_cvtepu8_epi32(a) octavo_emulated::cvtepu8_epi32(a)
#define _mm512_cvtepi8_epi32(a) octavo_emulated::cvtepi8_epi32(a)
#define _mm512_cvtepi32_epi16(a) octavo_emulated::cvtepi32_epi16(a)
#define _mm512_cvtepi32_epi8(a) octavo_emulated::cvtepi32_epi8(a)
#undef _mm512_cvtepi8_epi16
#define _mm512_cvtepi8_epi16(a) octavo_emulated::cvtepi8_epi16(a)
#define _mm512_cvtneps_pbh(a) octavo_emulated::cvtneps_pbh(a)
#define _mm512_cvtne2ps_pbh(a, b) octavo_emulated::cvtne2ps_pbh(a, b)
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(c, a, b) octavo_emulated::dpbf16_ps(c, a, b)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(a, n) octavo_emulated::srai_epi32<(n)>(a)
#undef _mm512_permute_ps
#define _mm512_permute_ps(a, order) octavo_emulated::permute_ps<(order)>(a)
#define _mm512_reduce_add_epi32(a) octavo_emulated::reduce_add_epi32(a)
#define _mm512_cmplt_epi32_mask(a, b) octavo_emulated::cmplt_epi32_mask(a, b)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, i) octavo_emulated::extractf32x8_ps<(i)>(a)
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64(a, i) octavo_emulated::extracti64x4_epi64<(i)>(a)
#define _mm512_maskz_loadu_ps(k, p) octavo_emulated::maskz_loadu_ps(k, p)
#define _mm512_maskz_loadu_epi32(k, p) octavo_emulated::maskz_loadu_epi32(k, p)
#define _mm512_maskz_loadu_epi8(k, p) octavo_emulated::maskz_loadu_epi8(k, p)
#define _mm512_mask_storeu_ps(p, k, a) octavo_emulated::mask_storeu_ps(p, k, a)
#define _mm256_maskz_loadu_epi16(k, p) octavo_emulated::maskz_loadu_epi16(k, p)
#define _mm256_mask_storeu_epi16(p, k, a) octavo_emulated::mask_storeu_epi16(p, k, a)
#undef _mm512_madd_epi16  // 0.7.4 declares the alias with the arguments of the masked form
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32(c, a, b) octavo_emulated::dpbusd(c, a, b)
#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32(c, a, b) octavo_emulated::dpbusd(c, a, b)
#undef _mm512_dpwssd_epi32
#define _mm512_dpwssd_epi32(c, a, b) octavo_emulated::dpwssd(c, a, b)
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpwssd_avx_epi32(c, a, b) octavo_emulated::dpwssd(c, a, b)

// What the compiler defines for the level (CMakeLists.txt beside this file names it).
#if OCTAVO_EMULATE_AVX512
#define __AVX512F__ 1
#define OCTAVO_PIN(vector)  // two halves
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __AVX512CD__ 1
#endif
#if OCTAVO_EMULATE_AVX512VNNI
#define __AVX512VNNI__ 1
#endif
#if OCTAVO_EMULATE_AVX512BF16
#define __AVX512BF16__ 1
#endif
#if OCTAVO_EMULATE_AVXVNNI
#define __AVXVNNI__ 1
#endif
#if OCTAVO_EMULATE_AMX
#define __AMX_TILE__ 1
#define __AMX_INT8__ 1
#define __AMX_BF16__ 1
#endif
