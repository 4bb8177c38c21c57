// One float32 lane in plain C++: the vector class for chips without a vector unit of ours, and for the tails of the rest.
//
// A vector class is a struct of static functions over F (float32 lanes), I (int32 lanes) and M (lane mask); avx2.h and
// avx512.h offer the same names. All floating operations round to nearest even; FTZ and DAZ are set by the caller's
// thread. min and max follow x86: the second operand where the compare is false (NaN, equal zeros).
// `load_n`/`store_n` touch exactly n (0 <= n <= kLanes) elements; missing lanes read as +0. `mask_bits` gives one bit per lane,
// the first lane lowest, `bits_mask` goes back (bits from kLanes on are ignored).
#pragma once

#include <cstdint>
#include <cstring>

#include "exec/fn.h"

namespace octavo::OCTAVO_ISA_NS::vec {

OCTAVO_FN uint32_t bits_of(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}

OCTAVO_FN float float_of(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

// a * b + c rounded once. Without the instruction: exact float64 product, float64 sum rounded to odd, then float32
// (Boldo & Melquiond 2008); rounding to odd matters only where the sum is halfway between two float32.
OCTAVO_FN float fma_scalar(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(OCTAVO_GPU)
  return __builtin_fmaf(a, b, c);
#else
  const double p = static_cast<double>(a) * b;
  double t = p + c;
  int64_t u;
  __builtin_memcpy(&u, &t, 8);
  if ((u & 0x1FFFFFFF) == 0x10000000 && t - t == 0) {
    const double part = t - p;
    const double error = (p - (t - part)) + (c - part);
    if (error != 0) {
      u += (error > 0) == (t > 0) ? 1 : -1;
      __builtin_memcpy(&t, &u, 8);
    }
  }
  return static_cast<float>(t);
#endif
}

// Half to even, |x| < 2^-126 to signed zero, NaN to quiet NaN, overflow to infinity.
OCTAVO_FN uint16_t bf16_of(float x) {
  const uint32_t u = bits_of(x), magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  if (magnitude < 0x00800000u) return static_cast<uint16_t>((u >> 16) & 0x8000u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

OCTAVO_FN float float_of_bf16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

// Exact; float16 denormals keep their value.
OCTAVO_FN float float_of_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
  if (exponent == 31) return float_of(sign | 0x7F800000u | (fraction ? 0x400000u : 0u) | (fraction << 13));
  if (exponent == 0) return float_of(sign | bits_of(static_cast<float>(static_cast<int32_t>(fraction)) * 0x1p-24f));
  return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

// Half to even, denormals kept, overflow to infinity, NaN to quiet NaN.
OCTAVO_FN uint16_t f16_of(float x) {
  const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above
  if (magnitude >= 0x38800000u) {                                              // normal: 2^-14 and above
    const uint32_t v = magnitude - 0x38000000u;
    return static_cast<uint16_t>(sign | ((v + 0xFFFu + ((v >> 13) & 1u)) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below 2^-25
  const uint32_t shift = 126u - (magnitude >> 23);                  // 14 .. 24
  const uint32_t m = (magnitude & 0x7FFFFFu) | 0x800000u, half = 1u << (shift - 1);
  return static_cast<uint16_t>(sign | ((m + half - 1u + ((m >> shift) & 1u)) >> shift));
}

struct F32x1 {
  static constexpr int kLanes = 1;
  using F = float;
  using I = int32_t;
  using M = bool;

  static OCTAVO_FN F zero() { return 0.0f; }
  static OCTAVO_FN F broadcast(float x) { return x; }
  static OCTAVO_FN I ibroadcast(int32_t x) { return x; }

  static OCTAVO_FN F load(const float* p) { return *p; }
  static OCTAVO_FN F load_n(const float* p, int n) { return n > 0 ? *p : 0.0f; }
  static OCTAVO_FN F load_bf16(const uint16_t* p) { return float_of_bf16(*p); }
  static OCTAVO_FN F load_bf16_n(const uint16_t* p, int n) { return n > 0 ? float_of_bf16(*p) : 0.0f; }
  static OCTAVO_FN F load_f16(const uint16_t* p) { return float_of_f16(*p); }
  static OCTAVO_FN F load_f16_n(const uint16_t* p, int n) { return n > 0 ? float_of_f16(*p) : 0.0f; }
  static OCTAVO_FN void store(float* p, F x) { *p = x; }
  static OCTAVO_FN void store_n(float* p, F x, int n) {
    if (n > 0) *p = x;
  }
  static OCTAVO_FN void store_bf16(uint16_t* p, F x) { *p = bf16_of(x); }
  static OCTAVO_FN void store_bf16_n(uint16_t* p, F x, int n) {
    if (n > 0) *p = bf16_of(x);
  }
  static OCTAVO_FN void store_f16(uint16_t* p, F x) { *p = f16_of(x); }
  static OCTAVO_FN void store_f16_n(uint16_t* p, F x, int n) {
    if (n > 0) *p = f16_of(x);
  }

  static OCTAVO_FN F add(F a, F b) { return a + b; }
  static OCTAVO_FN F sub(F a, F b) { return a - b; }
  static OCTAVO_FN F mul(F a, F b) { return a * b; }
  static OCTAVO_FN F div(F a, F b) { return a / b; }
  static OCTAVO_FN F fma(F a, F b, F c) { return fma_scalar(a, b, c); }
  static OCTAVO_FN F sqrt(F x) { return __builtin_sqrtf(x); }
  static OCTAVO_FN F min(F a, F b) { return a < b ? a : b; }
  static OCTAVO_FN F max(F a, F b) { return a > b ? a : b; }
  static OCTAVO_FN F neg(F x) { return float_of(bits_of(x) ^ 0x80000000u); }
  static OCTAVO_FN F abs(F x) { return float_of(bits_of(x) & 0x7FFFFFFFu); }
  static OCTAVO_FN F copysign(F x, F s) { return float_of((bits_of(x) & 0x7FFFFFFFu) | (bits_of(s) & 0x80000000u)); }
  static OCTAVO_FN F round_even(F x) { return __builtin_rintf(x); }
  // Nearest even; defined for |x| < 2^31.
  static OCTAVO_FN I cvt_i32(F x) { return x >= -0x1p31f && x < 0x1p31f ? static_cast<I>(__builtin_rintf(x)) : INT32_MIN; }
  // Cut towards zero; defined for |x| < 2^31.
  static OCTAVO_FN I cut_i32(F x) { return static_cast<I>(x); }
  static OCTAVO_FN F cvt_f32(I x) { return static_cast<F>(x); }

  static OCTAVO_FN I bits(F x) { return static_cast<I>(bits_of(x)); }
  static OCTAVO_FN F from_bits(I x) { return float_of(static_cast<uint32_t>(x)); }
  static OCTAVO_FN I iadd(I a, I b) { return static_cast<I>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
  static OCTAVO_FN I isub(I a, I b) { return static_cast<I>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b)); }
  static OCTAVO_FN I iand(I a, I b) { return a & b; }
  static OCTAVO_FN I ior(I a, I b) { return a | b; }
  static OCTAVO_FN I ixor(I a, I b) { return a ^ b; }
  static OCTAVO_FN I umax(I a, I b) { return static_cast<uint32_t>(a) > static_cast<uint32_t>(b) ? a : b; }
  static OCTAVO_FN I iload(const int32_t* p) { return *p; }
  // Words in 64-bit lanes, for products: those of even lanes and of odd lanes (none here) apart; only low halves count.
  using Wide = uint64_t;
  static OCTAVO_FN Wide even(I x) { return static_cast<uint32_t>(x); }
  static OCTAVO_FN Wide odd(I) { return 0; }
  static OCTAVO_FN Wide same(uint32_t x) { return x; }
  static OCTAVO_FN Wide product(Wide a, uint32_t b) { return static_cast<uint64_t>(static_cast<uint32_t>(a)) * b; }
  static OCTAVO_FN Wide high(Wide a) { return a >> 32; }
  static OCTAVO_FN Wide wxor(Wide a, Wide b) { return a ^ b; }
  static OCTAVO_FN I join(Wide even, Wide) { return static_cast<I>(even); }
  template <int n>
  static OCTAVO_FN I shl(I x) {
    return static_cast<I>(static_cast<uint32_t>(x) << n);
  }
  template <int n>
  static OCTAVO_FN I shr(I x) {
    return static_cast<I>(static_cast<uint32_t>(x) >> n);
  }
  template <int n>
  static OCTAVO_FN I sar(I x) {
    return x >> n;
  }

  static OCTAVO_FN M lt(F a, F b) { return a < b; }
  static OCTAVO_FN M gt(F a, F b) { return a > b; }
  static OCTAVO_FN M eq(F a, F b) { return a == b; }
  static OCTAVO_FN F select(M m, F a, F b) { return m ? a : b; }
  static OCTAVO_FN uint32_t mask_bits(M m) { return m; }
  static OCTAVO_FN M bits_mask(uint32_t bits) { return bits & 1; }
  // Every lane: the maximum of its block of four lanes (of its own where there are fewer).
  static OCTAVO_FN F max_of_fours(F x) { return x; }

  // Sixteen virtual lanes held in kParts vectors, folded 8, 4, 2, 1 apart.
  static OCTAVO_FN float fold16(const F (&part)[16]) {
    F v[8];
    for (int i = 0; i < 8; ++i) v[i] = part[i] + part[i + 8];
    for (int half = 4; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) v[i] = v[i] + v[i + half];
    return v[0];
  }
};

}  // namespace octavo::OCTAVO_ISA_NS::vec
