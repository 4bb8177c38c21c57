// Sources of pairs: the B operand of dot32, read as vectors of the even and of the odd element of each pair.
//
// Pairs<V, View>::even and odd give kLanes lanes of pair row i, from `lane` on. They may come in another order; `order` puts a
// finished vector right. Every widening to float32 is exact. From kUnpackRows rows on, unpacking a block once pays.
// look_ahead asks memory for another tile of the same form while this one is read, a few lines at a time: the hardware's own
// prefetch stops at each page, and a burst of requests is dropped. Into L1: a Zen 5 reads 5 % more a second than into L2.
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

inline void look_ahead(const Planes&, int64_t, int64_t, int64_t) {}

// Interleaved pairs of T: lane l of row i at at[i * stride + 2 * l] and the element after it.
template <class T>
struct Packed {
  const T* at;
  int64_t stride;
  const T* ahead;  // of a tile that will be read soon, or null
};

// What lies in the other tile where lanes [lane, lane + lanes) of row i lie in this one.
template <class T>
inline void look_ahead(const Packed<T>& b, int64_t i, int64_t lane, int64_t lanes) {
  if (!b.ahead) return;
  const auto* at = reinterpret_cast<const char*>(b.ahead + i * b.stride + 2 * lane);
  for (int64_t x = 0; x < 2 * lanes * static_cast<int64_t>(sizeof(T)); x += 64) __builtin_prefetch(at + x, 0, 3);
}

template <class V, class View>
struct Pairs;

template <class V>
struct Pairs<V, Planes> {
  using F = typename V::F;
  static constexpr int64_t kUnpackRows = INT64_MAX;
  static F even(const Planes& b, int64_t i, int64_t lane) { return V::load(b.even + i * b.stride + lane); }
  static F odd(const Planes& b, int64_t i, int64_t lane) { return V::load(b.odd + i * b.stride + lane); }
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
  static constexpr int64_t kUnpackRows = 2;
  static float even(const Packed<T>& b, int64_t i, int64_t lane) { return widen(b.at[i * b.stride + 2 * lane]); }
  static float odd(const Packed<T>& b, int64_t i, int64_t lane) { return widen(b.at[i * b.stride + 2 * lane + 1]); }
  static float order(float x) { return x; }
};

#if defined(__AVX2__)
// Even and odd elements of 16 floats; lanes 0 1 4 5 2 3 6 7.
inline __m256 evens_of(__m256 low, __m256 high) { return _mm256_shuffle_ps(low, high, 0x88); }
inline __m256 odds_of(__m256 low, __m256 high) { return _mm256_shuffle_ps(low, high, 0xDD); }
inline __m256 in_order(__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8)); }

template <>
struct Pairs<vec::F32x8, Packed<float>> {
  static constexpr int64_t kUnpackRows = 4;
  static __m256 even(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return evens_of(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
  }
  static __m256 odd(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return odds_of(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
  }
  static __m256 order(__m256 x) { return in_order(x); }
};

template <>
struct Pairs<vec::F32x8, Packed<F16>> {
  static constexpr int64_t kUnpackRows = 2;
  static __m256 even(const Packed<F16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return evens_of(vec::F32x8::load_f16(&p->bits), vec::F32x8::load_f16(&p->bits + 8));
  }
  static __m256 odd(const Packed<F16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return odds_of(vec::F32x8::load_f16(&p->bits), vec::F32x8::load_f16(&p->bits + 8));
  }
  static __m256 order(__m256 x) { return in_order(x); }
};

template <>
struct Pairs<vec::F32x8, Packed<BF16>> {
  static constexpr int64_t kUnpackRows = 16;
  static __m256 even(const Packed<BF16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
  }
  static __m256 odd(const Packed<BF16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  static __m256 order(__m256 x) { return x; }
};

template <>
struct Pairs<vec::F32x8, Packed<int8_t>> {
  static constexpr int64_t kUnpackRows = 6;
  static __m256i words(const int8_t* p) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256 even(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words(p), 24), 24));
  }
  static __m256 odd(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(words(p), 8));
  }
  static __m256 order(__m256 x) { return x; }
};
#endif

#if defined(__AVX512F__)
inline __m512 evens_of(__m512 low, __m512 high) {
  return _mm512_permutex2var_ps(low, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), high);
}
inline __m512 odds_of(__m512 low, __m512 high) {
  return _mm512_permutex2var_ps(low, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), high);
}
inline __m512 in_order(__m512 x) { return x; }

template <>
struct Pairs<vec::F32x16, Packed<float>> {
  static constexpr int64_t kUnpackRows = 4;
  static __m512 even(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return evens_of(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16));
  }
  static __m512 odd(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return odds_of(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16));
  }
  static __m512 order(__m512 x) { return in_order(x); }
};

template <>
struct Pairs<vec::F32x16, Packed<F16>> {
  static constexpr int64_t kUnpackRows = 2;
  static __m512 even(const Packed<F16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return evens_of(vec::F32x16::load_f16(&p->bits), vec::F32x16::load_f16(&p->bits + 16));
  }
  static __m512 odd(const Packed<F16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return odds_of(vec::F32x16::load_f16(&p->bits), vec::F32x16::load_f16(&p->bits + 16));
  }
  static __m512 order(__m512 x) { return in_order(x); }
};

template <>
struct Pairs<vec::F32x16, Packed<BF16>> {
  static constexpr int64_t kUnpackRows = 24;
  static __m512 even(const Packed<BF16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  static __m512 odd(const Packed<BF16>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  static __m512 order(__m512 x) { return x; }
};

template <>
struct Pairs<vec::F32x16, Packed<int8_t>> {
  static constexpr int64_t kUnpackRows = 6;
  static __m512i words(const int8_t* p) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 even(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words(p), 24), 24));
  }
  static __m512 odd(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(words(p), 8));
  }
  static __m512 order(__m512 x) { return x; }
};
#endif

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
