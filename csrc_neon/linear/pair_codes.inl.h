// Codes of the packed layouts for SMMLA: `pairs<step, M>(chunk, part, out)` is inputs 8 * step .. of the 32 of a chunk for M parts
// of four outputs, two and two. Vectors of 4 outputs x 4 inputs are zipped before their bits are taken apart, so that two or more
// steps share the zip.
//
// kShift: codes are 2^kShift times what they stand for, an exact conversion takes it off. kZero: a zero point that they still have.
#pragma once
#include "linear/codes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using Bits = uint8x16_t;

template <int n>
OCTAVO_INLINE Bits move_bits(Bits x) {  // up by n, or down by -n
  if constexpr (n > 0) return vshlq_n_u8(x, n);
  if constexpr (n < 0) return vshrq_n_u8(x, -n);
  return x;
}

OCTAVO_INLINE Bits all_bits(int byte) { return vdupq_n_u8(static_cast<uint8_t>(byte)); }

// Vectors of 4 outputs x 4 inputs of M parts, those of the next 4 inputs, zipped.
template <int M>
OCTAVO_INLINE void zip_parts(const uint8_t* first, const uint8_t* second, int flip, Bits (&out)[M][2]) {
  Bits a[M], b[M];
#pragma GCC unroll 2
  for (int i = 0; i < M; ++i) a[i] = vld1q_u8(first + 16 * i);
#pragma GCC unroll 2
  for (int i = 0; i < M; ++i) b[i] = second ? vld1q_u8(second + 16 * i) : vshrq_n_u8(flip ? veorq_u8(a[i], all_bits(flip)) : a[i], 1);
#pragma GCC unroll 2
  for (int i = 0; i < M; ++i) {
    if (flip) a[i] = veorq_u8(a[i], all_bits(flip));
    if (flip && second) b[i] = veorq_u8(b[i], all_bits(flip));
    const uint32x4_t low = vreinterpretq_u32_u8(a[i]), high = vreinterpretq_u32_u8(b[i]);
    out[i][0] = vreinterpretq_u8_u32(vzip1q_u32(low, high));
    out[i][1] = vreinterpretq_u8_u32(vzip2q_u32(low, high));
  }
}

// A plane of b bits, each byte first changed by `flip`, zipped: the bits of `step` are at bit `kAt`, beside others.
template <int b, int step>
struct Plane {
  static constexpr int kAt = b == 1 ? 2 * step : b * (2 * step / b);

  template <int M>
  static OCTAVO_INLINE void zip(const uint8_t* plane, int part, int flip, Bits (&out)[M][2]) {
    const uint8_t* first = plane + 64 * (2 * step % b) + 16 * part;
    zip_parts<M>(first, b == 1 ? nullptr : first + 64, flip, out);
  }
};

// Calls change(x) for each of the vectors.
template <int M, class Change>
OCTAVO_INLINE void for_each_pair(Bits (&x)[M][2], Change&& change) {
#pragma GCC unroll 2
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) x[i][h] = change(x[i][h], i, h);
}
#define OCTAVO_EACH(...) [&]([[maybe_unused]] Bits x, [[maybe_unused]] int i, [[maybe_unused]] int h) __attribute__((always_inline)) { return __VA_ARGS__; }

// A nibble as it is, its own bits clean.
template <int at>
OCTAVO_INLINE Bits low_nibble(Bits x) {
  return at ? vshrq_n_u8(x, 4) : vandq_u8(x, all_bits(15));
}

template <class Codes>
struct PairCodes;

template <>
struct PairCodes<ByteCodes> {
  static constexpr int kChunk = 512, kShift = 0;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    const uint8_t* first = chunk + 128 * step + 16 * part;
    zip_parts<M>(first, first + 64, 0, out);
  }
};

template <>
struct PairCodes<SignedNibbles> {
  static constexpr int kChunk = 256, kShift = 4;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    Plane<4, step>::zip(chunk, part, 0, out);
    for_each_pair(out, OCTAVO_EACH(Plane<4, step>::kAt ? vandq_u8(x, all_bits(0xF0)) : vshlq_n_u8(x, 4)));
  }
};

template <>
struct PairCodes<NibbleCodes> {
  static constexpr int kChunk = 256, kShift = 0;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    Plane<4, step>::zip(chunk, part, 0, out);
    for_each_pair(out, OCTAVO_EACH(low_nibble<Plane<4, step>::kAt>(x)));
  }
};

// Five bits, the zero point left on.
template <>
struct PairCodes<PlaneCodes<4, 1, 0>> {
  static constexpr int kChunk = 320, kShift = 0;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    Bits fifth[M][2];
    Plane<4, step>::zip(chunk, part, 0, out);
    Plane<1, step>::zip(chunk + 256, part, 0, fifth);
    for_each_pair(out, OCTAVO_EACH(vbslq_u8(all_bits(16), move_bits<4 - Plane<1, step>::kAt>(fifth[i][h]),
                                            low_nibble<Plane<4, step>::kAt>(x))));
  }
};

// Six bits, the highest turned over: two's complement in the upper bits of a byte.
template <>
struct PairCodes<PlaneCodes<4, 2, 32>> {
  static constexpr int kChunk = 384, kShift = 2;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    constexpr int kFrom = Plane<2, step>::kAt;
    Bits high[M][2];
    Plane<4, step>::zip(chunk, part, 0, out);
    Plane<2, step>::zip(chunk + 256, part, 0xAA, high);
    if constexpr (step < 2)
      for_each_pair(out, OCTAVO_EACH(vsliq_n_u8(vshlq_n_u8(x, 2), move_bits<-kFrom>(high[i][h]), 6)));
    else
      for_each_pair(out, OCTAVO_EACH(vandq_u8(vsriq_n_u8(move_bits<6 - kFrom>(high[i][h]), x, 2), all_bits(0xFC))));
  }
};

// Three bits, the highest set where 4 is not taken off.
template <>
struct PairCodes<PlaneCodes<2, 1, 4>> {
  static constexpr int kChunk = 192, kShift = 0;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    Bits high[M][2];
    Plane<2, step>::zip(chunk, part, 0, out);
    Plane<1, step>::zip(chunk + 128, part, 0xFF, high);
    for_each_pair(out, OCTAVO_EACH(vsliq_n_u8((move_bits<-Plane<2, step>::kAt>(x)),  // a macro of clang's
                                              vtstq_u8(high[i][h], all_bits(1 << Plane<1, step>::kAt)), 2)));
  }
};

template <>
struct PairCodes<PlaneCodes<2, 0, 0>> {
  static constexpr int kChunk = 128, kShift = 0;
  template <int step, int M>
  static OCTAVO_INLINE void pairs(const uint8_t* chunk, int part, Bits (&out)[M][2]) {
    constexpr int kFrom = Plane<2, step>::kAt;
    Plane<2, step>::zip(chunk, part, 0, out);
    for_each_pair(out, OCTAVO_EACH(kFrom < 6 ? vandq_u8(move_bits<-kFrom>(x), all_bits(3)) : move_bits<-kFrom>(x)));
  }
};
#undef OCTAVO_EACH

// float(isum), exact.
template <class Pairs>
OCTAVO_INLINE F pairs_to_float(I isum) {
  if constexpr (Pairs::kShift > 0) return vcvtq_n_f32_s32(isum, Pairs::kShift);
  return V::cvt_f32(isum);
}

// P vectors from `at`, which goes on behind them.
template <int P>
struct PairVectors {
  Bytes v[P];

  explicit OCTAVO_INLINE PairVectors(const uint8_t*& at) {
    const auto* x = reinterpret_cast<const int8_t*>(at);
    if constexpr (P == 4) {
      load_four(at, v);
      return;
    } else if constexpr (P == 3) {
      const int8x16x3_t three = vld1q_s8_x3(x);
      v[0] = three.val[0], v[1] = three.val[1], v[2] = three.val[2];
    } else if constexpr (P == 2) {
      const int8x16x2_t two = vld1q_s8_x2(x);
      v[0] = two.val[0], v[1] = two.val[1];
    } else {
      v[0] = vld1q_s8(x);
    }
    at += 16 * P;
    hide(at);
  }
  OCTAVO_INLINE F floats(int p) const { return vreinterpretq_f32_s8(v[p]); }
  OCTAVO_INLINE I ints(int p) const { return vreinterpretq_s32_s8(v[p]); }
};

// sum += two rows x two outputs of 8 bytes each.
#if defined(__ARM_FEATURE_MATMUL_INT8)
OCTAVO_INLINE I mmla(I sum, Bytes rows, Bytes outputs) { return vmmlaq_s32(sum, rows, outputs); }
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
OCTAVO_INLINE F mmla(F sum, Bytes rows, Bytes outputs) {
  return vbfmmlaq_f32(sum, vreinterpretq_bf16_s8(rows), vreinterpretq_bf16_s8(outputs));
}
#endif

// sum[p][2 * i + h] += products of the next 8 bytes of pair p, `step` of its 32, with outputs of part `part0 + i`.
template <class Pairs, int step, int P, int N, class Sum, class Change>
OCTAVO_INLINE void add_pairs(Sum (&sum)[P][2 * N], const uint8_t* chunk, int part0, const uint8_t*& x, Change&& change) {
  constexpr int M = N > 1 ? 2 : 1;  // neighbouring parts are loaded together
  const PairVectors<P> in(x);
  each<0, N / M>([&](auto two) __attribute__((always_inline)) {
    Bits codes[M][2];
    Pairs::template pairs<step, M>(chunk, part0 + M * two, codes);
#pragma GCC unroll 4
    for (int n = 0; n < 2 * M; ++n) {
      const int i = 2 * M * two + n;
      const Bytes w = change(vreinterpretq_s8_u8(codes[n / 2][n % 2]), i);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[p][i] = mmla(sum[p][i], in.v[p], w);
    }
  });
  asm("" : "+r"(x), "+w"(sum[P - 1][2 * N - 1]));  // the next vectors are not loaded before, or sums would not stay in registers
}

template <class Pairs, int step, int P, int N, class Sum>
OCTAVO_INLINE void add_pairs(Sum (&sum)[P][2 * N], const uint8_t* chunk, int part0, const uint8_t*& x) {
  add_pairs<Pairs, step, P, N>(sum, chunk, part0, x, [](Bytes w, int) __attribute__((always_inline)) { return w; });
}

// The same, of codes that were made ready.
template <int P, int N, class Sum>
OCTAVO_INLINE void add_ready(Sum (&sum)[P][2 * N], const uint8_t*& ready, const uint8_t*& x) {
  const PairVectors<P> in(x);
  const PairVectors<2 * N> codes(ready);
#pragma GCC unroll 4
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[p][i] = mmla(sum[p][i], in.v[p], codes.v[i]);
  asm("" : "+r"(x), "+w"(sum[P - 1][2 * N - 1]));
}

// Codes of 32 inputs of a panel, each vector changed by change(codes, step, two outputs), to 4 / N streams of N parts, `stride` apart.
template <class Pairs, int N, bool swaps, class Change>
OCTAVO_INLINE void make_ready(const uint8_t* chunk, uint8_t* to, int64_t stride, Change&& change) {
#pragma GCC unroll 1
  for (int two = 0; two < 4; two += 2) {
    Bits codes[4][2][2];  // all before the first store, so that steps share what they share
    each<0, 4>([&](auto n) __attribute__((always_inline)) {
      Pairs::template pairs<swaps ? n / 2 + n % 2 * 2 : n, 2>(chunk, two, codes[n]);
    });
    uint8_t* at[2] = {to + two / N * stride, to + (two + 1) / N * stride + (N > 1 ? 32 : 0)};
    hide(at[1]);
    each<0, 4>([&](auto n) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h)
          vst1q_s8(reinterpret_cast<int8_t*>(at[i]) + 16 * (2 * N * n + h),
                   change(vreinterpretq_s8_u8(codes[n][i][h]), swaps ? n / 2 + n % 2 * 2 : n, 2 * (two + i) + h));
    });
  }
}

template <class Pairs, int N, bool swaps>
OCTAVO_INLINE void make_ready(const uint8_t* chunk, uint8_t* to, int64_t stride) {
  make_ready<Pairs, N, swaps>(chunk, to, stride, [](Bytes w, int, int) __attribute__((always_inline)) { return w; });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
