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

// How chains begin. A product (FMUL) instead of FMLA to +0 saves the zeros, and gives -0 where +0 is due if the product is -0. FMLA and FADD
// pass that on as it is, -0 for +0, or make both the same; so what is not -0 in the end is right. A sum of the contract begins as +0 and
// becomes -0 only where a sum of two numbers is flushed: tiles with a -0 are rare, and are computed again from zeros.
enum class Begin { kZero, kProduct };

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

  // Products with input k of the block, in `lane` of `in`.
  template <Begin begin, int k, int lane>
  OCTAVO_INLINE void add(int i, F w, const F (&in)[R]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      F& sum = k % 2 ? odd[r][i] : even[r][i];
      if constexpr (begin == Begin::kProduct && k < 2)
        sum = vmulq_laneq_f32(w, in[r], lane);
      else
        sum = vfmaq_laneq_f32(sum, w, in[r], lane);
    }
  }
};

// Where the inputs of R rows are.
template <class Input, int R>
using RowsAt = const Input* [R];

// Two vectors by one instruction. As assembly: gcc 12 pairs few of the loads of a long block. Nothing writes weights meanwhile.
template <int offset>
OCTAVO_INLINE void load_two(const uint8_t* at, Bytes& first, Bytes& second) {
  asm("ldp %q0, %q1, [%2, %3]" : "=w"(first), "=w"(second) : "r"(at), "i"(offset));
}

// Whether M vectors come by one load from a pointer that goes on; others come two at a time, from the middle of the record, which is what
// such loads reach.
template <int R, int M>
constexpr bool kIsStream = R == 1 && M == 4;

// Step `step` of a block: M vectors.
template <class W, int R, int step, int M>
OCTAVO_INLINE void load_weights(const uint8_t*& at, Bytes (&w)[M]) {
  constexpr int kOffset = W::kStepBytes * step - W::kRecord / 2;
  if constexpr (kIsStream<R, M>)
    load_four(at, w);
  else if constexpr (M == 1)
    w[0] = load_bytes(at + kOffset);
  else
    each<0, M / 2>([&](auto i) __attribute__((always_inline)) { load_two<kOffset + 32 * i>(at, w[2 * i], w[2 * i + 1]); });
}

// kStepBytes: weights of one input (bfloat16: of a pair) for a panel. kInputs: of one vector of a row.
template <PackedKind kind, class InputType, int inputs, int step_bytes>
struct Weights {
  using Input = InputType;
  static constexpr PackedKind kKind = kind;
  static constexpr int kInputs = inputs, kStepBytes = step_bytes, kRecord = static_cast<int>(record_bytes(kind, 0));

  template <int N>
  static constexpr int kVectors = N * step_bytes / 64;  // of N parts
};

struct F32Weights : Weights<PackedKind::f32, float, 4, 64> {
  template <int N>
  static OCTAVO_INLINE void widen(const Bytes (&w)[N], F (&out)[N]) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) out[i] = vreinterpretq_f32_s8(w[i]);
  }
};

struct F16Weights : Weights<PackedKind::f16, float, 4, 32> {
  template <int M>
  static OCTAVO_INLINE void widen(const Bytes (&w)[M], F (&out)[2 * M]) {
#pragma GCC unroll 2
    for (int i = 0; i < M; ++i) {
      const float16x8_t both = vreinterpretq_f16_s8(w[i]);
      out[2 * i] = vcvt_f32_f16(vget_low_f16(both));
      out[2 * i + 1] = vcvt_high_f32_f16(both);
    }
  }
};

struct BF16Weights : Weights<PackedKind::bf16, uint16_t, 8, 64> {};

// Adds vector `part` of every row's inputs of a block.
template <class W, Begin begin, int part, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const RowsAt<float, R>& x, const uint8_t*& at) {
  F in[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) in[r] = V::load(x[r] + 4 * part);
  each<0, 4>([&](auto n) __attribute__((always_inline)) {
    Bytes packed[W::template kVectors<N>];
    load_weights<W, R, 4 * part + n>(at, packed);
    F w[N];
    W::widen(packed, w);
    each<0, N>([&](auto i) __attribute__((always_inline)) { chains->template add<begin, 4 * part + n, n>(i, w[i], in); });
  });
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool kHasProducts = false;

template <class W, Begin, int part, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const RowsAt<uint16_t, R>& x, const uint8_t*& at) {
  bfloat16x8_t in[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) in[r] = vreinterpretq_bf16_u16(vld1q_u16(x[r] + 8 * part));
  each<0, 4>([&](auto n) __attribute__((always_inline)) {
    Bytes w[N];
    load_weights<W, R, 4 * part + n>(at, w);
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
constexpr bool kHasProducts = true;

template <class W, Begin begin, int part, int R, int N>
OCTAVO_INLINE void add_inputs(Chains<R, N>* chains, const RowsAt<uint16_t, R>& x, const uint8_t*& at) {
  each<2 * part, 2 * part + 2>([&](auto four) __attribute__((always_inline)) {
    F in[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) in[r] = V::load_bf16(x[r] + 4 * four);
    each<0, 2>([&](auto n) __attribute__((always_inline)) {
      Bytes w[N];
      load_weights<W, R, 2 * four + n>(at, w);
      each<0, N>([&](auto i) __attribute__((always_inline)) {
        const uint32x4_t pair = vreinterpretq_u32_s8(w[i]);
        chains->template add<begin, 4 * four + 2 * n, 2 * n>(i, vreinterpretq_f32_u32(vshlq_n_u32(pair, 16)), in);
        chains->template add<begin, 4 * four + 2 * n + 1, 2 * n + 1>(
            i, vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xFFFF0000u))), in);
      });
    });
  });
}
#endif

template <class W>
struct DenseKernel {
  using Input = typename W::Input;
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = sizeof(Input);

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R>
  static constexpr Begin kBegin = R > 1 && kHasProducts ? Begin::kProduct : Begin::kZero;

  // acc += one block of 32 inputs at x.
  template <int R, int N>
  static OCTAVO_INLINE void block(RowsAt<Input, R>& x, const uint8_t* record, F (&acc)[R][N]) {
    Chains<R, N> chains;
    if (kBegin<R> == Begin::kZero) chains.clear();
    const uint8_t* weights = record + (kIsStream<R, W::template kVectors<N>> ? 0 : W::kRecord / 2);
    each<0, 32 / W::kInputs>([&](auto n) __attribute__((always_inline)) {
      add_inputs<W, kBegin<R>, n>(&chains, x, weights);
      // Nothing is loaded before there are registers for it.
      asm("" : "+r"(weights), "+w"(chains.odd[R - 1][N - 1]));
    });
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[r][i] = V::add(acc[r][i], V::add(chains.even[r][i], chains.odd[r][i]));
  }

  // Adds blocks to sums of N parts of the panel, which stay in registers. `record`: the first block's, from the first part on.
  template <int R, int N>
  [[gnu::noinline]] void add_blocks(const TileAt& at, const Input* first, int64_t ldx, const uint8_t* record, int64_t blocks,
                                    float* sums) const {
    RowsAt<Input, R> x;
    F acc[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      x[r] = first + r * ldx;
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[r][i] = V::load(sums + 16 * r + 4 * i);
    }
    for (Ahead<1> ahead(at, record, panel_bytes); blocks > 0; --blocks, record += W::kRecord) {
      if (ahead.aim(record)) each<0, W::kRecord / 64>([&](auto line) __attribute__((always_inline)) { ahead.ask(64 * line); });
      block<R, N>(x, record, acc);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) x[r] += 32;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) V::store(sums + 16 * r + 4 * i, acc[r][i]);
  }

  template <int R>
  void all_parts(const TileAt& at, const Input* x, int64_t ldx, int64_t block, int64_t blocks, float* sums) const {
    constexpr int N = R > 2 ? 2 : 4;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes + block * W::kRecord;
    TileAt one = at;
    for (int part = 0; part < 4; part += N, one.turn = -1)  // the first asks for lines of all
      add_blocks<R, N>(one, x, ldx, record + W::kStepBytes / 4 * part, blocks, sums + 4 * part);
  }

  // Sums of R rows, chains begun as kBegin<R> tells.
  template <int R>
  void products(const TileAt& at, float (&sums)[16 * R]) const {
    const Input* x = static_cast<const Input*>(a.x) + at.row * a.ldx;
    const int64_t blocks = a.k / 32, left = a.k % 32;
    std::memset(sums, 0, sizeof sums);
    all_parts<R>(at, x, a.ldx, 0, blocks, sums);
    if (left == 0) return;
    alignas(16) Input padded[R][32] = {};  // what is missing of the last block reads as +0
    for (int r = 0; r < R; ++r) std::memcpy(padded[r], x + r * a.ldx + 32 * blocks, static_cast<size_t>(left) * sizeof(Input));
    all_parts<R>(at, padded[0], 32, blocks, 1, sums);
  }

  // Whether none of them is -0.
  template <int count>
  static bool are_right(const float (&sums)[count]) {
    I least = V::ibroadcast(0);
#pragma GCC unroll 16
    for (int i = 0; i < count; i += 4) least = vminq_s32(least, V::bits(V::load(sums + i)));
    return vminvq_s32(least) > INT32_MIN;
  }

  template <int R>
  [[gnu::noinline]] void again(TileAt at, float* sums) const {
    static_assert(kBegin<1> == Begin::kZero);
    for (int r = 0; r < R; ++r, ++at.row) products<1>(at, *reinterpret_cast<float(*)[16]>(sums + 16 * r));
  }

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    alignas(16) float sums[R * 16];
    products<R>(at, sums);
    if (kBegin<R> == Begin::kProduct && !are_right(sums)) again<R>(at, sums);
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
