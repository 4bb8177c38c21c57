// Eight float32 lanes: AVX2 with FMA and F16C. The names and rules are those of scalar.h.
#pragma once

#include <immintrin.h>

#include "scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

struct F32x8 {
  static constexpr int kLanes = 8;
  using F = __m256;
  using I = __m256i;
  using M = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F broadcast(float x) { return _mm256_set1_ps(x); }
  static I ibroadcast(int32_t x) { return _mm256_set1_epi32(x); }
  // All ones in the first n lanes.
  static I first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static F load_bf16(const uint16_t* p) { return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_bf16_n(const uint16_t* p, int n) { return widen_bf16(load16_n(p, n)); }
  static F load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_f16_n(const uint16_t* p, int n) { return _mm256_cvtph_ps(load16_n(p, n)); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, first(n), x); }
  static void store_bf16(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x)); }
  static void store_bf16_n(uint16_t* p, F x, int n) { store16_n(p, narrow_bf16(x), n); }
  static void store_f16(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_f16(x)); }
  static void store_f16_n(uint16_t* p, F x, int n) { store16_n(p, narrow_f16(x), n); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F sqrt(F x) { return _mm256_sqrt_ps(x); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F neg(F x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }
  static F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F copysign(F x, F s) { return _mm256_or_ps(abs(x), _mm256_and_ps(s, _mm256_set1_ps(-0.0f))); }
  static F round_even(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static I cvt_i32(F x) { return _mm256_cvtps_epi32(x); }
  static I cut_i32(F x) { return _mm256_cvttps_epi32(x); }
  static F cvt_f32(I x) { return _mm256_cvtepi32_ps(x); }

  static I bits(F x) { return _mm256_castps_si256(x); }
  static F from_bits(I x) { return _mm256_castsi256_ps(x); }
  static I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
  static I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I iand(I a, I b) { return _mm256_and_si256(a, b); }
  static I ior(I a, I b) { return _mm256_or_si256(a, b); }
  static I ixor(I a, I b) { return _mm256_xor_si256(a, b); }
  static I umax(I a, I b) { return _mm256_max_epu32(a, b); }
  static I iload(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  using Wide = I;
  static Wide even(I x) { return x; }
  static Wide odd(I x) { return high(x); }
  static Wide same(uint32_t x) { return ibroadcast(static_cast<int32_t>(x)); }
  static Wide product(Wide a, uint32_t b) { return _mm256_mul_epu32(a, same(b)); }
  static Wide high(Wide a) { return _mm256_srli_epi64(a, 32); }
  static Wide wxor(Wide a, Wide b) { return ixor(a, b); }
  static I join(Wide even, Wide odd) { return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA); }
  template <int n>
  static I shl(I x) {
    return _mm256_slli_epi32(x, n);
  }
  template <int n>
  static I shr(I x) {
    return _mm256_srli_epi32(x, n);
  }
  template <int n>
  static I sar(I x) {
    return _mm256_srai_epi32(x, n);
  }

  static M lt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M gt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static M eq(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static F select(M m, F a, F b) { return _mm256_blendv_ps(b, a, m); }
  static uint32_t mask_bits(M m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
  static M bits_mask(uint32_t bits) {
    const I each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return from_bits(_mm256_cmpeq_epi32(_mm256_and_si256(ibroadcast(static_cast<int32_t>(bits)), each), each));
  }
  static F max_of_fours(F x) {
    const F pairs = max(x, _mm256_permute_ps(x, 0xB1));
    return max(pairs, _mm256_permute_ps(pairs, 0x4E));
  }

  static float fold16(const F (&part)[2]) { return fold8(_mm256_add_ps(part[0], part[1])); }
  // Lanes fold 4, 2, 1 apart.
  static float fold8(F v) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
  }

  static F widen_bf16(__m128i h) { return from_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
  static __m128i narrow_f16(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // The contract's rounding (scalar.h bf16_of) on the bits.
  static __m128i narrow_bf16(F x) {
    const I u = bits(x), high = _mm256_srli_epi32(u, 16), magnitude = _mm256_and_si256(u, ibroadcast(0x7FFFFFFF));
    const I odd = _mm256_and_si256(high, ibroadcast(1));
    I r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, ibroadcast(0x7FFF))), 16);
    const I tiny = _mm256_cmpgt_epi32(ibroadcast(0x00800000), magnitude);
    const I nan = _mm256_cmpgt_epi32(magnitude, ibroadcast(0x7F800000));
    r = _mm256_blendv_epi8(r, _mm256_and_si256(high, ibroadcast(0x8000)), tiny);
    r = _mm256_blendv_epi8(r, _mm256_or_si256(high, ibroadcast(0x40)), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  }
  static __m128i load16_n(const uint16_t* p, int n) {
    alignas(16) uint16_t buffer[8] = {};
    for (int i = 0; i < n; ++i) buffer[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
  }
  static void store16_n(uint16_t* p, __m128i h, int n) {
    alignas(16) uint16_t buffer[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), h);
    for (int i = 0; i < n; ++i) p[i] = buffer[i];
  }
};

}  // namespace octavo::OCTAVO_ISA_NS::vec
