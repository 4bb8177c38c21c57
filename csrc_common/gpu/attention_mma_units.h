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

// Of int8: 16 bytes are dimensions 16 q .. 16 q + 15 of 64, which are unit q of two steps; queries are ordered alike.
template <>
struct KVUnits<KVI8> {
  using Operand = OperandBF16;
  using ValueUnit = Words2;
  static constexpr int kStepsOfLoad = 2;
  static constexpr bool kBlanks = false;
  static constexpr int kParts = 1;
  struct RawValues {
    ValueUnit unit[kUnits];
  };
  static OCTAVO_GPU_FN int step_of(int dim) { return dim / 64 * 2 + dim % 16 / kUnit; }
  static OCTAVO_GPU_FN int q_of(int dim) { return dim % 64 / 16; }
  static OCTAVO_GPU_FN int32_t pack(float low, float high, int) { return pack_bf16(low, high); }
  static OCTAVO_GPU_FN void widen(int32_t (&to)[4], int32_t low, int32_t high) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t pair = (i < 2 ? low : high) >> (i % 2 * 16);
      to[i] = pack_small(static_cast<float>(static_cast<int8_t>(pair)), static_cast<float>(static_cast<int8_t>(pair >> 8)));
    }
  }
  static OCTAVO_GPU_FN Operand key(const Words4 (&raw)[kUnits], int i) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) widen(to.w[u], raw[u].w[2 * i], raw[u].w[2 * i + 1]);
    return to;
  }
  static OCTAVO_GPU_FN Operand value(const RawValues& raw) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) widen(to.w[u], raw.unit[u].w[0], raw.unit[u].w[1]);
    return to;
  }
  static OCTAVO_GPU_FN void blank(RawValues&, int32_t, int32_t, int32_t) {}
};

}  // namespace octavo::gpu

#endif
