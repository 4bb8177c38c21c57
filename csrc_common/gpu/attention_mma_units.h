// How elements of a KV dtype become operands of matrix units, and queries and weights with them.
#pragma once

#include "gpu/attention_mma_lanes.h"
#include "gpu/pages.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

template <bool is_first, class First, class Other>
struct Either {
  using Type = First;
};
template <class First, class Other>
struct Either<false, First, Other> {
  using Type = Other;
};

// Keys and values of two bytes: a lane's 16 bytes of a key are one unit. kParts: of queries and weights. To float16 keys and values
// belong float32 queries and weights (docs/numerics.md), which are two float16 each: 22 bits.
template <class KV>
struct KVUnits {
  static constexpr bool kIsF16 = KV::kType == kKVF16;
  using Operand = typename Either<kIsF16, OperandF16, OperandBF16>::Type;
  using ValueUnit = Words4;
  static constexpr int kStepsOfLoad = 1;
  static constexpr bool kBlanks = true;  // what nobody sees may be no number
  static constexpr int kParts = kIsF16 ? 2 : 1;
  struct RawValues {
    ValueUnit unit[kUnits];
  };
  static OCTAVO_GPU_FN int step_of(int dim) { return dim / 32; }
  static OCTAVO_GPU_FN int q_of(int dim) { return dim % 32 / kUnit; }
  static OCTAVO_GPU_FN int32_t pack(float low, float high, int part) {
    if constexpr (kIsF16) {
      const int32_t first = pack_f16(low, high);
      return part == 0 ? first : pack_f16(low - float_of_low_half(first), high - float_of_low_half(first >> 16));
    } else {
      return pack_bf16(low, high);
    }
  }
  static OCTAVO_GPU_FN Operand key(const Words4 (&raw)[kUnits], int) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) to.w[u][i] = raw[u].w[i];
    return to;
  }
  static OCTAVO_GPU_FN Operand value(const RawValues& raw) { return key(raw.unit, 0); }
  // Weights of positions that nobody sees are 0, but what lies there may be no number. Masks are made anew for every tile.
  static OCTAVO_GPU_FN void blank(RawValues& raw, int32_t begin, int32_t from, int32_t to) {
    const int32_t first = opaque_uniform(from - begin), count = to - from + 1;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto at = static_cast<uint32_t>(kUnit * unit_q(u) + 2 * i - first);
        const auto most = static_cast<uint32_t>(count);
        const uint32_t mask = (at < most ? 0xFFFFu : 0u) | (at + 1 < most ? 0xFFFF0000u : 0u);
        raw.unit[u].w[i] &= static_cast<int32_t>(mask);
      }
  }
};

// How codes of one byte become bfloat16: `widen` gives those of eight codes, exactly, as pairs, of kFactor of what they stand for.
template <class KV>
struct CodesOf;

template <>
struct CodesOf<KVI8> {
  static constexpr bool kBlanks = false;
  static constexpr float kFactor = 1.0f;
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t pair = (i < 2 ? low : high) >> (i % 2 * 16);
      to[i] = pack_small(static_cast<float>(static_cast<int8_t>(pair)), static_cast<float>(static_cast<int8_t>(pair >> 8)));
    }
  }
};

// Bits of E4M3 moved to where float16 or bfloat16 has them are 2^-8 or 2^-120 of the number, denormals too, and no code is NaN then. CDNA 3
// reads codes as FNUZ, of half the value.
template <>
struct CodesOf<KVF8> {
#if defined(__gfx942__) || defined(__gfx950__) || defined(__GFX12__)
  static constexpr bool kBlanks = true;
#if defined(__gfx942__)
  static constexpr float kFactor = 0.5f;
#else
  static constexpr float kFactor = 1.0f;
#endif
  template <bool is_high>
  static OCTAVO_GPU_FN int32_t pair_of(int32_t codes) {
#if defined(__gfx950__)
    return __builtin_bit_cast(int32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes, 1.0f, is_high));
#else
    const auto two = __builtin_amdgcn_cvt_pk_f32_fp8(codes, is_high);
    return opaque(pack_small(two[0], two[1]));  // one pair after the other: registers
#endif
  }
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
    to[0] = pair_of<false>(low), to[1] = pair_of<true>(low);
    to[2] = pair_of<false>(high), to[3] = pair_of<true>(high);
  }
#elif defined(__HIP__)
  static constexpr bool kBlanks = false;
  static constexpr float kFactor = 0x1p-8f;
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
    using I2 = int16_t __attribute__((ext_vector_type(2)));
    using H2 = _Float16 __attribute__((ext_vector_type(2)));
    constexpr I2 kBits = {static_cast<int16_t>(0xBF80), static_cast<int16_t>(0xBF80)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const I2 odds = __builtin_bit_cast(I2, i == 0 ? low : high), evens = odds << 8;
      const auto even = __builtin_bit_cast(H2, evens >> 1 & kBits), odd = __builtin_bit_cast(H2, odds >> 1 & kBits);
#pragma unroll
      for (int j = 0; j < 2; ++j) to[2 * i + j] = pack_small(static_cast<float>(even[j]), static_cast<float>(odd[j]));
    }
  }
#elif defined(__CUDACC__)
  static constexpr bool kBlanks = false;
  static constexpr float kFactor = 1.0f;
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = __byte_perm(i < 2 ? low : high, 0, i % 2 == 0 ? 0x1404 : 0x3424);
      const uint32_t moved = (two >> 4 & 0x07F007F0u) | (two & 0x80008000u);
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to[i]) : "r"(moved), "r"(0x7B807B80), "r"(0x80008000));
    }
  }
#else
  static constexpr bool kBlanks = true;
  static constexpr float kFactor = 1.0f;
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
    for (int i = 0; i < 4; ++i) {
      const int32_t pair = (i < 2 ? low : high) >> (i % 2 * 16);
      to[i] = pack_small(KVF8::widen(static_cast<uint8_t>(pair)), KVF8::widen(static_cast<uint8_t>(pair >> 8)));
    }
  }
#endif
};

// Of codes: 16 bytes are dimensions 16 q .. 16 q + 15 of 64, which are unit q of two steps; queries are ordered alike.
template <class KV>
struct CodeUnits : CodesOf<KV> {
  using Operand = OperandBF16;
  using ValueUnit = Words2;
  static constexpr int kStepsOfLoad = 2;
  static constexpr int kParts = 1;
  struct RawValues {
    ValueUnit unit[kUnits];
  };
  static OCTAVO_GPU_FN int step_of(int dim) { return dim / 64 * 2 + dim % 16 / kUnit; }
  static OCTAVO_GPU_FN int q_of(int dim) { return dim % 64 / 16; }
  static OCTAVO_GPU_FN int32_t pack(float low, float high, int) { return pack_bf16(low, high); }
  static OCTAVO_GPU_FN Operand key(const Words4 (&raw)[kUnits], int i) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) CodesOf<KV>::widen(to.w[u], raw[u].w[2 * i], raw[u].w[2 * i + 1]);
    return to;
  }
  static OCTAVO_GPU_FN Operand value(const RawValues& raw) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) CodesOf<KV>::widen(to.w[u], raw.unit[u].w[0], raw.unit[u].w[1]);
    return to;
  }
  static OCTAVO_GPU_FN void blank(RawValues& raw, int32_t begin, int32_t from, int32_t to) {
    if constexpr (CodesOf<KV>::kBlanks) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int32_t first = opaque_uniform(begin) + kUnit * unit_q(u) + 4 * i, before = from - first, behind = first + 3 - to;
          const uint32_t low = ~0u << 8 * (before > 0 ? before : 0), high = ~0u >> 8 * (behind > 0 ? behind : 0);
          const uint32_t mask = before < 4 && behind < 4 ? low & high : 0u;
          raw.unit[u].w[i] &= static_cast<int32_t>(mask);
        }
    }
  }
};
template <>
struct KVUnits<KVI8> : CodeUnits<KVI8> {};
template <>
struct KVUnits<KVF8> : CodeUnits<KVF8> {};

// Operands that keys, and values, are made of.
template <class Units>
constexpr int kKeyPartsOf = 1;

}  // namespace octavo::gpu

#endif
