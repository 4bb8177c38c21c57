// Sampling noise: Philox4x32-10 keyed by (seed, choice, position, purpose, token), and Gumbel noise made of it.
// Twin of platforms/reference/philox.py, operation by operation. Salmon et al. 2011; Maddison et al. 2014.
#pragma once
#include <cstdint>

#include "vec/math.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct NoiseKey {
  uint64_t seed;
  uint32_t choice;
  int64_t position;
};

// The draw of one token.
inline uint32_t noise_draw(const NoiseKey& key, uint32_t token) {
  uint32_t c0 = token >> 2;
  uint32_t c1 = static_cast<uint32_t>(key.position);
  uint32_t c2 = key.choice;
  uint32_t c3 = static_cast<uint32_t>((static_cast<uint64_t>(key.position) >> 32) & 0xFFFFFFu);
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint32_t words[4] = {c0, c1, c2, c3};
  return words[token & 3];
}

// Thirty-two bit lanes with full products, for as many counters at once as a vector has lanes.
template <class V>
struct Words;

template <>
struct Words<vec::F32x1> {
  using U = uint32_t;
  static U broadcast(uint32_t x) { return x; }
  static U counters(uint32_t first) { return first; }
  static U mix(U a, U b, U c) { return a ^ b ^ c; }
  static void product(U a, uint32_t m, U* high, U* low) {
    const uint64_t p = static_cast<uint64_t>(a) * m;
    *high = static_cast<uint32_t>(p >> 32);
    *low = static_cast<uint32_t>(p);
  }
  static bool any_from(U a, uint32_t least) { return a >= least; }
  static void store(uint32_t* p, U a) { *p = a; }
};

#if defined(__AVX2__)
template <>
struct Words<vec::F32x8> {
  using U = __m256i;
  static U broadcast(uint32_t x) { return _mm256_set1_epi32(static_cast<int32_t>(x)); }
  static U counters(uint32_t first) { return _mm256_add_epi32(broadcast(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
  static U mix(U a, U b, U c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static void product(U a, uint32_t m, U* high, U* low) {
    const U b = broadcast(m), even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  }
  static bool any_from(U a, uint32_t least) {
    const U same = _mm256_cmpeq_epi32(_mm256_max_epu32(a, broadcast(least)), a);
    return _mm256_movemask_epi8(same) != 0;
  }
  static void store(uint32_t* p, U a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
};
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
template <>
struct Words<vec::F32x16> {
  using U = __m512i;
  static U broadcast(uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); }
  static U counters(uint32_t first) {
    return _mm512_add_epi32(broadcast(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  }
  static U mix(U a, U b, U c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
  static void product(U a, uint32_t m, U* high, U* low) {
    const U b = broadcast(m), even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
    *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
    *low = _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
  }
  static bool any_from(U a, uint32_t least) { return _mm512_cmpge_epu32_mask(a, broadcast(least)) != 0; }
  static void store(uint32_t* p, U a) { _mm512_storeu_si512(p, a); }
};
#endif

// The draws of 4 * V::kLanes tokens from `first` on, a multiple of 4: words[j] holds those of tokens first + j, first + j + 4, ...
template <class V>
inline void noise_words(const NoiseKey& key, uint32_t first, typename Words<V>::U (&words)[4]) {
  using W = Words<V>;
  using U = typename W::U;
  const auto position = static_cast<uint64_t>(key.position);
  U c0 = W::counters(first >> 2);
  U c1 = W::broadcast(static_cast<uint32_t>(position));
  U c2 = W::broadcast(key.choice);
  U c3 = W::broadcast(static_cast<uint32_t>(position >> 32 & 0xFFFFFFu));
  for (uint32_t turn = 0; turn < 10; ++turn) {
    U high0, low0, high1, low1;
    W::product(c0, 0xD2511F53u, &high0, &low0);
    W::product(c2, 0xCD9E8D57u, &high1, &low1);
    c0 = W::mix(high1, c1, W::broadcast(static_cast<uint32_t>(key.seed) + turn * 0x9E3779B9u));
    c2 = W::mix(high0, c3, W::broadcast(static_cast<uint32_t>(key.seed >> 32) + turn * 0xBB67AE85u));
    c1 = low1;
    c3 = low0;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

struct LogParts {
  float k, f;
};

inline LogParts log_reduce(float x) {
  using S = vec::F32x1;
  const int32_t u = S::bits(x);
  const int32_t k = S::sar<23>(S::isub(u, 0x3F3504F3));
  return {S::cvt_f32(k), S::from_bits(S::isub(u, S::shl<23>(k))) - 1.0f};
}

inline float log_of_parts(LogParts p) {
  using S = vec::F32x1;
  static constexpr float kPoly[] = {0x1.147f7ep-4f,  -0x1.de810ap-4f, 0x1.e7046ap-4f,  -0x1.fc18d4p-4f, 0x1.23358ep-3f,
                                    -0x1.555c7ap-3f, 0x1.99a4ccp-3f,  -0x1.000006p-2f, 0x1.555548p-2f};
  const float z = p.f * p.f;
  float y = (p.f * z) * vec::horner<S>(p.f, kPoly);
  y = S::fma(z, -0.5f, S::fma(p.k, 0x1.7f7d1cp-20f, y));
  return S::fma(p.k, 0x1.62e400p-1f, p.f + y);
}

// -log(-log(u)) of u = (draw + 1/2) / 2^32, accurate at both ends, in [-3.2, 22.9].
inline float gumbel(uint32_t draw) {
  const bool is_high = draw >= 0x80000000u;
  const float t = (static_cast<float>(static_cast<int32_t>(is_high ? ~draw : draw)) + 0.5f) * 0x1p-32f;
  LogParts p = log_reduce(is_high ? 1.0f - t : t);
  if (is_high && t < 0.25f) p.f = -t;
  const float e = -log_of_parts(p);
  return -log_of_parts(log_reduce(e));
}

constexpr float kMaxGumbel = 23.0f;

// No draw below this has gumbel(draw) >= g: -log u <= exp(-g) needs 1 - u <= exp(-g). The slack is far more than what rounding
// does to gumbel and exp.
inline uint32_t least_draw(float g) {
  const float share = vec::exp<vec::F32x1>(1e-4f - g) * 0x1p32f;  // of 2^32 draws, the highest
  return share < 0x1.fffp31f ? ~(static_cast<uint32_t>(share) + 2u) : 0u;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
