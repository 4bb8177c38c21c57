// Pairs (attention/pairs.inl.h) for the vectors of x86.
#pragma once

namespace octavo::OCTAVO_ISA_NS {
namespace {

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

// Bits of E4M3 moved to where float16 has them are 2^-8 of the number, denormals too.
template <>
struct Pairs<vec::F32x8, Packed<E4M3>> {
  static constexpr int64_t kUnpackRows = 4;
  static __m128i words(const E4M3* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static __m256 widened(__m128i high_bytes) {
    const __m128i halves = _mm_and_si128(_mm_srai_epi16(high_bytes, 1), _mm_set1_epi16(static_cast<int16_t>(0xBF80)));
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0f));
  }
  static __m256 even(const Packed<E4M3>& b, int64_t i, int64_t lane) {
    return widened(_mm_slli_epi16(words(b.at + i * b.stride + 2 * lane), 8));
  }
  static __m256 odd(const Packed<E4M3>& b, int64_t i, int64_t lane) { return widened(words(b.at + i * b.stride + 2 * lane)); }
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

template <>
struct Pairs<vec::F32x16, Packed<E4M3>> {
  static constexpr int64_t kUnpackRows = 4;
  static __m256i words(const E4M3* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m512 widened(__m256i high_bytes) {
    const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(high_bytes, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
    return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0f));
  }
  static __m512 even(const Packed<E4M3>& b, int64_t i, int64_t lane) {
    return widened(_mm256_slli_epi16(words(b.at + i * b.stride + 2 * lane), 8));
  }
  static __m512 odd(const Packed<E4M3>& b, int64_t i, int64_t lane) { return widened(words(b.at + i * b.stride + 2 * lane)); }
  static __m512 order(__m512 x) { return x; }
};
#endif

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
