// linear_bf16, linear_f16, linear_f32: float weights by dot32 (platforms/ops.py).
//
// Per block of 32 inputs two chains from +0, over even and over odd inputs, then acc += even + odd. A tile is R rows x a panel; chains
// of half a panel are in registers together. Inputs come by lane of a vector, so that none is broadcast. bfloat16 weights lie in
// pairs: FMLA takes them widened (exact: a shift, a mask); with FEAT_BF16 BFMLALB and BFMLALT take the even and the odd one of every
// pair as they are, fused, with one rounding: the same chains, bit for bit.
#pragma once
#include "linear/dots.inl.h"
#include "linear/tile_walk.inl.h"

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
};

struct F16Weights {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static constexpr int kStep = 4;
  static OCTAVO_INLINE F weight(const uint8_t* at, int i, int part) {
    return V::load_f16(reinterpret_cast<const uint16_t*>(at) + 16 * i + 4 * part);
  }
};

template <class W, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const float* x, int64_t ldx, const uint8_t* at, int part0) {
  F in[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) in[r] = V::load(x + r * ldx);
  each<0, 4>([&](auto n) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const F w = W::weight(at, n, part0 + i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        F& sum = n % 2 ? chains->odd[r][i] : chains->even[r][i];
        sum = vfmaq_laneq_f32(sum, w, in[r], n);
      }
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
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const bfloat16x8_t w = vreinterpretq_bf16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(at + 64 * n + 16 * (part0 + i))));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        chains->even[r][i] = vbfmlalbq_laneq_f32(chains->even[r][i], w, in[r], 2 * n);
        chains->odd[r][i] = vbfmlaltq_laneq_f32(chains->odd[r][i], w, in[r], 2 * n + 1);
      }
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
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const uint32x4_t pair = vld1q_u32(reinterpret_cast<const uint32_t*>(at + 64 * (2 * half + n) + 16 * (part0 + i)));
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

  // One block of 32 inputs at x, added to acc[R][16].
  template <int R, int N>
  OCTAVO_INLINE void block(const Input* x, int64_t ldx, const uint8_t* record, int part0, float* acc) const {
    constexpr int kBytes = static_cast<int>(kRecord) / 32 * W::kStep;
    Chains<R, N> chains;
    chains.clear();
#pragma GCC unroll 1
    for (int i = 0; i < 32; i += W::kStep, record += kBytes) add_inputs<W>(&chains, x + i, ldx, record, part0);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        float* sum = acc + 16 * r + 4 * (part0 + i);
        V::store(sum, V::add(V::load(sum), V::add(chains.even[r][i], chains.odd[r][i])));
      }
  }

  template <int R>
  OCTAVO_INLINE void both_halves(const Input* x, int64_t ldx, const uint8_t* record, float* acc) const {
    if constexpr (R > 2) {
      block<R, 2>(x, ldx, record, 0, acc);
      block<R, 2>(x, ldx, record, 2, acc);
    } else {
      block<R, 4>(x, ldx, record, 0, acc);
    }
  }

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    const Input* x = static_cast<const Input*>(a.x) + at.row * a.ldx;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<1> ahead(at, record, panel_bytes);
    alignas(16) float acc[R * 16] = {};
    int64_t i = 0;
    for (; i + 32 <= a.k; i += 32, record += kRecord) {
      ahead.ask(record, kRecord);
      both_halves<R>(x + i, a.ldx, record, acc);
    }
    if (i < a.k) {  // what is missing of the last block reads as +0
      alignas(16) Input padded[R][32] = {};
      for (int r = 0; r < R; ++r) std::memcpy(padded[r], x + r * a.ldx + i, static_cast<size_t>(a.k - i) * sizeof(Input));
      both_halves<R>(padded[0], 32, record, acc);
    }
    finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, acc);
  }
};

template <class W>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_kernel<DenseKernel<W>>(a, step, lane, panel_bytes(W::kKind, 0, a.k));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
