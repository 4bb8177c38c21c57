// Sources of pairs: the B operand of dot32, read as vectors of the even and of the odd element of each pair.
//
// Pairs<V, View>::read(view, i, lane, &even, &odd) gives kLanes lanes of pair row i, from `lane` on. They may come in another
// order; `order` puts a finished vector right. Every widening to float32 is exact.
#pragma once
#include <cstring>

#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Even and odd elements in rows of their own: row i at even + i * stride, odd + i * stride.
struct Planes {
  const float* even;
  const float* odd;
  int64_t stride;
};

// Interleaved pairs of T: lane l of row i at at[i * stride + 2 * l] and the element after it.
template <class T>
struct Packed {
  const T* at;
  int64_t stride;
};

template <class V, class View>
struct Pairs;

template <class V>
struct Pairs<V, Planes> {
  using F = typename V::F;
  static void read(const Planes& b, int64_t i, int64_t lane, F* e, F* o) {
    *e = V::load(b.even + i * b.stride + lane);
    *o = V::load(b.odd + i * b.stride + lane);
  }
  static F order(F x) { return x; }
};

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float widen(float x) { return x; }
inline float widen(BF16 x) { return vec::float_of_bf16(x.bits); }
inline float widen(F16 x) { return vec::float_of_f16(x.bits); }
inline float widen(int8_t x) { return static_cast<float>(x); }

template <class T>
struct Pairs<vec::F32x1, Packed<T>> {
  static void read(const Packed<T>& b, int64_t i, int64_t lane, float* e, float* o) {
    const T* p = b.at + i * b.stride + 2 * lane;
    *e = widen(p[0]);
    *o = widen(p[1]);
  }
  static float order(float x) { return x; }
};

#if defined(__AVX2__)
template <>
struct Pairs<vec::F32x8, Packed<float>> {
  static void read(const Packed<float>& b, int64_t i, int64_t lane, __m256* e, __m256* o) {
    const float* p = b.at + i * b.stride + 2 * lane;
    const __m256 low = _mm256_loadu_ps(p), high = _mm256_loadu_ps(p + 8);
    *e = _mm256_shuffle_ps(low, high, 0x88);  // lanes 0 1 4 5 2 3 6 7
    *o = _mm256_shuffle_ps(low, high, 0xDD);
  }
  static __m256 order(__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8)); }
};

template <>
struct Pairs<vec::F32x8, Packed<F16>> {
  static void read(const Packed<F16>& b, int64_t i, int64_t lane, __m256* e, __m256* o) {
    const auto* p = reinterpret_cast<const uint16_t*>(b.at + i * b.stride + 2 * lane);
    const __m256 low = vec::F32x8::load_f16(p), high = vec::F32x8::load_f16(p + 8);
    *e = _mm256_shuffle_ps(low, high, 0x88);
    *o = _mm256_shuffle_ps(low, high, 0xDD);
  }
  static __m256 order(__m256 x) { return Pairs<vec::F32x8, Packed<float>>::order(x); }
};

template <>
struct Pairs<vec::F32x8, Packed<BF16>> {
  static void read(const Packed<BF16>& b, int64_t i, int64_t lane, __m256* e, __m256* o) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.at + i * b.stride + 2 * lane));
    *e = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    *o = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  static __m256 order(__m256 x) { return x; }
};

template <>
struct Pairs<vec::F32x8, Packed<int8_t>> {
  static void read(const Packed<int8_t>& b, int64_t i, int64_t lane, __m256* e, __m256* o) {
    const __m256i x = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.at + i * b.stride + 2 * lane)));
    *e = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 24), 24));
    *o = _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 8));
  }
  static __m256 order(__m256 x) { return x; }
};
#endif

#if defined(__AVX512F__)
inline void split_pairs(__m512 a, __m512 b, __m512* e, __m512* o) {
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *e = _mm512_permutex2var_ps(a, evens, b);
  *o = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
}

template <>
struct Pairs<vec::F32x16, Packed<float>> {
  static void read(const Packed<float>& b, int64_t i, int64_t lane, __m512* e, __m512* o) {
    const float* p = b.at + i * b.stride + 2 * lane;
    split_pairs(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16), e, o);
  }
  static __m512 order(__m512 x) { return x; }
};

template <>
struct Pairs<vec::F32x16, Packed<F16>> {
  static void read(const Packed<F16>& b, int64_t i, int64_t lane, __m512* e, __m512* o) {
    const auto* p = reinterpret_cast<const uint16_t*>(b.at + i * b.stride + 2 * lane);
    split_pairs(vec::F32x16::load_f16(p), vec::F32x16::load_f16(p + 16), e, o);
  }
  static __m512 order(__m512 x) { return x; }
};

template <>
struct Pairs<vec::F32x16, Packed<BF16>> {
  static void read(const Packed<BF16>& b, int64_t i, int64_t lane, __m512* e, __m512* o) {
    const __m512i x = _mm512_loadu_si512(b.at + i * b.stride + 2 * lane);
    *e = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *o = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  static __m512 order(__m512 x) { return x; }
};

template <>
struct Pairs<vec::F32x16, Packed<int8_t>> {
  static void read(const Packed<int8_t>& b, int64_t i, int64_t lane, __m512* e, __m512* o) {
    const __m512i x = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.at + i * b.stride + 2 * lane)));
    *e = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(x, 24), 24));
    *o = _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 8));
  }
  static __m512 order(__m512 x) { return x; }
};
#endif

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
