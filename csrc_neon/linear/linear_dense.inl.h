// linear_bf16, linear_f16, linear_f32: float weights by dot32 (platforms/ops.py).
//
// Per block of 32 inputs two chains from +0, over even and over odd inputs, then acc += even + odd. A tile is R rows x a panel; chains
// and sums of half a panel are in registers together. Inputs come by lane of a vector, so that none is broadcast. bfloat16 weights lie in
// pairs: FMLA takes them widened (exact: a shift, a mask); with FEAT_BF16 BFMLALB and BFMLALT take the even and the odd one of every
// pair as they are, fused, with one rounding: the same chains, bit for bit.
#pragma once
#include "linear/dots.inl.h"
#include "linear/tile_walk.inl.h"
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "bfmlal.inl.h"
#endif

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Chains of one block: R rows x N vectors of four outputs.
template <int R, int N>
struct Chains {
  F even[R][N], odd[R][N];

  OCTAVO_INLINE void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) even[r][i] = odd[r][i] = V::zero();
  }
};

// kStep: inputs of one vector of a row. `add` takes kStep inputs of every row, and their weights for outputs from 4 * part0 on.
struct F32Weights {
  static constexpr PackedKind kKind = PackedKind::f32;
  using Input = float;
  static constexpr int kStep = 4;
  static OCTAVO_INLINE F weight(const uint8_t* at, int i, int part) {
    return V::load(reinterpret_cast<const float*>(at) + 16 * i + 4 * part);
  }
  static OCTAVO_INLINE void weights(const uint8_t*& at, F (&w)[4]) {
    Bytes four[4];
    load_four(at, four);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_f32_s8(four[i]);
  }
};

struct F16Weights {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static constexpr int kStep = 4;
  static OCTAVO_INLINE F weight(const uint8_t* at, int i, int part) {
    return V::load_f16(reinterpret_cast<const uint16_t*>(at) + 16 * i + 4 * part);
  }
  static OCTAVO_INLINE void weights(const uint8_t*& at, F (&w)[4]) {
    halves16(at, w);
    at += 32;
  }
};

template <class W, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const float* x, int64_t ldx, const uint8_t* at, int part0) {
  F in[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) in[r] = V::load(x + r * ldx);
  each<0, 4>([&](auto n) __attribute__((always_inline)) {
    F w[N];
    if constexpr (R == 1 && N == 4)
      W::weights(at, w);
    else
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) w[i] = W::weight(at, n, part0 + i);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        F& sum = n % 2 ? chains->odd[r][i] : chains->even[r][i];
        sum = vfmaq_laneq_f32(sum, w[i], in[r], n);
      }
  });
}

struct BF16Weights {
  static constexpr PackedKind kKind = PackedKind::bf16;
  using Input = uint16_t;
  static constexpr int kStep = 8;
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <class W, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const uint16_t* x, int64_t ldx, const uint8_t* at, int part0) {
  bfloat16x8_t in[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) in[r] = vreinterpretq_bf16_u16(vld1q_u16(x + r * ldx));
  each<0, 4>([&](auto n) __attribute__((always_inline)) {
    Bytes w[N];
    if constexpr (R == 1 && N == 4)
      load_four(at, w);
    else
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) w[i] = load_bytes(at + 64 * n + 16 * (part0 + i));
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        add_even<2 * n>(chains->even[r][i], vreinterpretq_bf16_s8(w[i]), in[r]);
        add_odd<2 * n + 1>(chains->odd[r][i], vreinterpretq_bf16_s8(w[i]), in[r]);
      }
  });
}
#else
template <class W, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const uint16_t* x, int64_t ldx, const uint8_t* at, int part0) {
  each<0, 2>([&](auto half) __attribute__((always_inline)) {
    F in[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) in[r] = V::load_bf16(x + r * ldx + 4 * half);
    each<0, 2>([&](auto n) __attribute__((always_inline)) {
      Bytes w[N];
      if constexpr (R == 1 && N == 4)
        load_four(at, w);
      else
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) w[i] = load_bytes(at + 64 * (2 * half + n) + 16 * (part0 + i));
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const uint32x4_t pair = vreinterpretq_u32_s8(w[i]);
        const F low = vreinterpretq_f32_u32(vshlq_n_u32(pair, 16));
        const F high = vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xFFFF0000u)));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          chains->even[r][i] = vfmaq_laneq_f32(chains->even[r][i], low, in[r], 2 * n);
          chains->odd[r][i] = vfmaq_laneq_f32(chains->odd[r][i], high, in[r], 2 * n + 1);
        }
      }
    });
  });
}
#endif

template <class W>
struct DenseKernel {
  using Input = typename W::Input;
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = sizeof(Input);
  static constexpr int64_t kRecord = record_bytes(W::kKind, 0);

  const LinearArgs& a;
  int64_t panel_bytes;

  // acc += one block of 32 inputs at x.
  template <int R, int N>
  static OCTAVO_INLINE void block(const Input* x, int64_t ldx, const uint8_t* record, int part0, F (&acc)[R][N]) {
    constexpr int kBytes = static_cast<int>(kRecord) / 32 * W::kStep;
    Chains<R, N> chains;
    chains.clear();
#pragma GCC unroll 2
    for (int i = 0; i < 32; i += W::kStep, record += kBytes) add_inputs<W>(&chains, x + i, ldx, record, part0);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[r][i] = V::add(acc[r][i], V::add(chains.even[r][i], chains.odd[r][i]));
  }

  // N parts of the panel from part0 on; sums stay in registers.
  template <int R, int N>
  void part_of_tile(const TileAt& at, int part0, float* sums) const {
    const Input* x = static_cast<const Input*>(a.x) + at.row * a.ldx;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    const int64_t ldx = a.ldx;
    Ahead<1> ahead(at, record, panel_bytes);
    F acc[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[r][i] = V::zero();
    int64_t left = a.k;
    for (; left >= 32; left -= 32, x += 32, record += kRecord) {
      if (part0 == 0) ahead.ask(record, kRecord);
      block<R, N>(x, ldx, record, part0, acc);
    }
    if (left > 0) {  // what is missing of the last block reads as +0
      alignas(16) Input padded[R][32] = {};
      for (int r = 0; r < R; ++r) std::memcpy(padded[r], x + r * ldx, static_cast<size_t>(left) * sizeof(Input));
      block<R, N>(padded[0], 32, record, part0, acc);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) V::store(sums + 16 * r + 4 * (part0 + i), acc[r][i]);
  }

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    alignas(16) float sums[R * 16];
    constexpr int N = R > 2 ? 2 : 4;
    for (int part0 = 0; part0 < 4; part0 += N) part_of_tile<R, N>(at, part0, sums);
    finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, sums);
  }
};

template <class W>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_kernel<DenseKernel<W>>(a, step, lane, panel_bytes(W::kKind, 0, a.k));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
