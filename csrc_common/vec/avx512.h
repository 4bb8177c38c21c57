// Sixteen float32 lanes: AVX-512 F, BW, DQ and VL (bf16 rounding by the instruction where AVX512_BF16 is compiled in).
// The names and rules are those of scalar.h.
#pragma once

#include <immintrin.h>

#include "avx2.h"

namespace octavo::OCTAVO_ISA_NS::vec {

struct F32x16 {
  static constexpr int kLanes = 16;
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static F zero() { return _mm512_setzero_ps(); }
  static F broadcast(float x) { return _mm512_set1_ps(x); }
  static I ibroadcast(int32_t x) { return _mm512_set1_epi32(x); }
  // Ones for the first n lanes.
  static M first(int n) { return static_cast<M>((1u << n) - 1u); }

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static F load_bf16(const uint16_t* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F load_bf16_n(const uint16_t* p, int n) { return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p)); }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_f16_n(const uint16_t* p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static void store_bf16(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x)); }
  static void store_bf16_n(uint16_t* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_bf16(x)); }
  static void store_f16(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(x)); }
  static void store_f16_n(uint16_t* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_f16(x)); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F sqrt(F x) { return _mm512_sqrt_ps(x); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F neg(F x) { return from_bits(_mm512_xor_si512(bits(x), ibroadcast(INT32_MIN))); }
  static F abs(F x) { return from_bits(_mm512_and_si512(bits(x), ibroadcast(0x7FFFFFFF))); }
  static F copysign(F x, F s) {
    return from_bits(_mm512_or_si512(bits(abs(x)), _mm512_and_si512(bits(s), ibroadcast(INT32_MIN))));
  }
  static F round_even(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static I cvt_i32(F x) { return _mm512_cvtps_epi32(x); }
  static I cut_i32(F x) { return _mm512_cvttps_epi32(x); }
  static F cvt_f32(I x) { return _mm512_cvtepi32_ps(x); }

  static I bits(F x) { return _mm512_castps_si512(x); }
  static F from_bits(I x) { return _mm512_castsi512_ps(x); }
  static I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
  static I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I iand(I a, I b) { return _mm512_and_si512(a, b); }
  static I ior(I a, I b) { return _mm512_or_si512(a, b); }
  static I ixor(I a, I b) { return _mm512_xor_si512(a, b); }
  static I umax(I a, I b) { return _mm512_max_epu32(a, b); }
  static I iload(const int32_t* p) { return _mm512_loadu_si512(p); }
  using Wide = I;
  static Wide even(I x) { return x; }
  static Wide odd(I x) { return high(x); }
  static Wide same(uint32_t x) { return ibroadcast(static_cast<int32_t>(x)); }
  static Wide product(Wide a, uint32_t b) { return _mm512_mul_epu32(a, same(b)); }
  static Wide high(Wide a) { return _mm512_srli_epi64(a, 32); }
  static Wide wxor(Wide a, Wide b) { return ixor(a, b); }
  static I join(Wide even, Wide odd) { return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32)); }
  template <int n>
  static I shl(I x) {
    return _mm512_slli_epi32(x, n);
  }
  template <int n>
  static I shr(I x) {
    return _mm512_srli_epi32(x, n);
  }
  template <int n>
  static I sar(I x) {
    return _mm512_srai_epi32(x, n);
  }

  static M lt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M gt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static M eq(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static F select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
  static uint32_t mask_bits(M m) { return m; }
  static M bits_mask(uint32_t bits) { return static_cast<M>(bits); }
  static F max_of_fours(F x) {
    const F pairs = max(x, _mm512_permute_ps(x, 0xB1));
    return max(pairs, _mm512_permute_ps(pairs, 0x4E));
  }

  static float fold16(const F (&part)[1]) {
    return F32x8::fold8(_mm256_add_ps(_mm512_castps512_ps256(part[0]), _mm512_extractf32x8_ps(part[0], 1)));
  }

  static F widen_bf16(__m256i h) { return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
  static __m256i narrow_f16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static __m256i narrow_bf16(F x) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
    const I u = bits(x), high = _mm512_srli_epi32(u, 16), magnitude = _mm512_and_si512(u, ibroadcast(0x7FFFFFFF));
    const I odd = _mm512_and_si512(high, ibroadcast(1));
    I r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, ibroadcast(0x7FFF))), 16);
    const M tiny = _mm512_cmplt_epi32_mask(magnitude, ibroadcast(0x00800000));
    const M nan = _mm512_cmpgt_epi32_mask(magnitude, ibroadcast(0x7F800000));
    r = _mm512_mask_and_epi32(r, tiny, high, ibroadcast(0x8000));
    r = _mm512_mask_or_epi32(r, nan, high, ibroadcast(0x40));
    return _mm512_cvtepi32_epi16(r);
#endif
  }
};

}  // namespace octavo::OCTAVO_ISA_NS::vec
