// Which scores a lane has after the products of queries with 32 keys, on every chip; beside gpu/mma.h.
//
// Keys are handed to the matrix units in such an order that the scores which come out of them lie where the next product, of
// weights with values, wants its operand: weights never leave their lane (RDNA 3: they cross to the other half of the wave).
// A lane has kSlots queries, and of each kScoreUnits runs of 8 neighbouring keys. Queries are operand B (AMD) or A (NVIDIA).
#pragma once

#include "gpu/mma.h"
#include "gpu/rows.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

#if defined(__GFX9__) || (!defined(__HIP__) && !defined(__CUDACC__) && OCTAVO_WAVE == 64)
constexpr bool kQueryIsA = false;
constexpr int kSlots = 1, kScoreUnits = 1;
OCTAVO_GPU_FN int token_of_row(int tile, int row) { return 8 * (row / 4) + 4 * tile + row % 4; }
OCTAVO_GPU_FN int score_q(int) { return lane() / 16; }
OCTAVO_GPU_FN float& score_at(SumsF32 (&s)[2], int, int, int j) { return s[j / 4].v[j % 4]; }
#elif defined(__GFX11__)
constexpr bool kQueryIsA = false;
constexpr int kSlots = 1, kScoreUnits = 2;
OCTAVO_GPU_FN int token_of_row(int tile, int row) { return 16 * tile + 8 * (row % 2) + row / 2; }
OCTAVO_GPU_FN int score_q(int u) { return 2 * u + lane() / 16; }
OCTAVO_GPU_FN float& score_at(SumsF32 (&s)[2], int, int u, int j) { return s[u].v[j]; }
#elif defined(__GFX12__)
constexpr bool kQueryIsA = false;
constexpr int kSlots = 1, kScoreUnits = 2;
OCTAVO_GPU_FN int token_of_row(int tile, int row) { return 16 * tile + row; }
OCTAVO_GPU_FN int score_q(int u) { return 2 * u + lane() / 16; }
OCTAVO_GPU_FN float& score_at(SumsF32 (&s)[2], int, int u, int j) { return s[u].v[j]; }
#else
constexpr bool kQueryIsA = true;
constexpr int kSlots = 2, kScoreUnits = 1;
OCTAVO_GPU_FN int token_of_row(int tile, int row) { return 8 * (row % 8 / 2) + 4 * tile + row / 8 * 2 + row % 2; }
OCTAVO_GPU_FN int score_q(int) { return lane() % 4; }
OCTAVO_GPU_FN float& score_at(SumsF32 (&s)[2], int slot, int, int j) { return s[j / 4].v[j % 4 / 2 * 4 + slot * 2 + j % 2]; }
#endif

// Where a unit of queries lies among 64 in shared memory, so that neighbouring lanes read neighbours.
OCTAVO_GPU_FN int unit_place(int row, int q) { return kQueryIsA ? 4 * row + q : 16 * q + row; }
// The row of a slot among 16 queries, and whether this lane speaks for it.
OCTAVO_GPU_FN int query_row(int slot) { return kQueryIsA ? lane() / 4 + 8 * slot : lane() % 16; }
OCTAVO_GPU_FN bool speaks_for_row() { return kQueryIsA ? lane() % 4 == 0 : lane() < 16; }
// Of value i of a result of weights and values: its query's slot, and its dimension among 16.
OCTAVO_GPU_FN constexpr int slot_of(int i) { return kQueryIsA ? i % 4 / 2 : 0; }
OCTAVO_GPU_FN int dim_of(int i) { return kQueryIsA ? row_of_b(i) : row_of_a(i); }

// C[queries, others] in the order of the chip.
template <class Operand>
OCTAVO_GPU_FN void mma_query(SumsF32& c, const Operand& query, const Operand& other) {
  if constexpr (kQueryIsA) {
    mma(c, query, other);
  } else {
    mma(c, other, query);
  }
}

// A product is made here, not where it is first needed: clang 22 sinks those of RDNA 3 behind branches, and keeps operands of all.
OCTAVO_GPU_FN void settle(SumsF32& c) {
#if defined(__GFX11__)
  using F8 = float __attribute__((ext_vector_type(8)));
  F8 sums = bits_as<F8>(c);
  __asm__ volatile("" : "+v"(sums));
  c = bits_as<SumsF32>(sums);
#else
  static_cast<void>(c);
#endif
}

// Sums of nothing, of which RDNA 3 need not keep a copy from tile to tile.
OCTAVO_GPU_FN void begin_sums(SumsF32& c) {
#if defined(__GFX11__)
  const float nothing = float_of_word(opaque(0));
#pragma unroll
  for (int i = 0; i < kValues; ++i) c.v[i] = nothing;
#else
  c = SumsF32{};
#endif
}

// Over the lanes that have the same query.
template <class Fold>
OCTAVO_GPU_FN float over_row(float x, Fold&& fold) {
  if constexpr (kQueryIsA) {
    for (int apart = 1; apart < 4; apart *= 2) x = fold(x, shuffle_xor(x, apart));
  } else {
    const int mine = opaque(lane());
    for (int apart = 16; apart < kWave; apart *= 2) x = fold(x, shuffle(x, mine ^ apart));
  }
  return x;
}

// Two bfloat16, half to even; no NaN becomes a number.
OCTAVO_GPU_FN int32_t pack_bf16(float low, float high) {
#if defined(__gfx950__)
  using H2 = __bf16 __attribute__((ext_vector_type(2)));
  using F2 = float __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(int32_t, __builtin_convertvector((F2{low, high}), H2));
#elif defined(__CUDACC__)
  int32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  const auto rounded = [](float x) {
    const uint32_t u = static_cast<uint32_t>(word_of_float(x));
    return u + 0x7FFFu + (u >> 16 & 1u);
  };
  return static_cast<int32_t>(rounded(low) >> 16 | (rounded(high) & 0xFFFF0000u));
#endif
}

// Two float16, half to even, and the lower of two.
OCTAVO_GPU_FN int32_t pack_f16(float low, float high) {
#if defined(__HIP__)
  using H2 = _Float16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(int32_t, H2{static_cast<_Float16>(low), static_cast<_Float16>(high)});
#elif defined(__CUDACC__)
  int32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return vec::f16_of(low) | static_cast<int32_t>(static_cast<uint32_t>(vec::f16_of(high)) << 16);
#endif
}
OCTAVO_GPU_FN float float_of_low_half(int32_t pair) {
#if defined(__HIP__)
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair)));
#elif defined(__CUDACC__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<uint16_t>(pair)));
  return x;
#else
  return vec::float_of_f16(static_cast<uint16_t>(pair));
#endif
}

// Two whole numbers of 8 bits, exactly.
OCTAVO_GPU_FN int32_t pack_small(float low, float high) {
  return static_cast<int32_t>(static_cast<uint32_t>(word_of_float(low)) >> 16 | (static_cast<uint32_t>(word_of_float(high)) & 0xFFFF0000u));
}

// Weights as an operand, or a part of it (KVUnits): runs of 8 keys of the lane's queries.
template <class Units>
OCTAVO_GPU_FN void weights_operand(typename Units::Operand& to, const float (&w)[kSlots][kScoreUnits][8], int part) {
#if defined(__GFX11__)
#pragma unroll
  for (int u = 0; u < kScoreUnits; ++u)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t mine = Units::pack(w[0][u][2 * i], w[0][u][2 * i + 1], part), other = shuffle_xor(mine, 16);
      to.w[2 * u][i] = lane() < 16 ? mine : other;
      to.w[2 * u + 1][i] = lane() < 16 ? other : mine;
    }
#else
#pragma unroll
  for (int s = 0; s < kSlots; ++s)
#pragma unroll
    for (int u = 0; u < kScoreUnits; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) to.w[s + u][i] = Units::pack(w[s][u][2 * i], w[s][u][2 * i + 1], part);
#endif
}

// 2^x by the chip's own instruction, where it has one: what is below 2^-126 is 0.
OCTAVO_GPU_FN float exp2_fast(float x) {
#if defined(__HIP__)
  return __builtin_amdgcn_exp2f(x);
#elif defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __builtin_exp2f(x);
#endif
}

}  // namespace octavo::gpu

#endif
