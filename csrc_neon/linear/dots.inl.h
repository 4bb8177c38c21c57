// Exact int32 sums of byte codes times int8 inputs, for R rows and N vectors of four outputs.
//
// A vector of codes holds 4 outputs x 4 inputs (packed/panels.h); the four inputs come from one lane of a row's vector. With
// FEAT_DotProd that is one SDOT by element. Without it an int16 takes one product of each step of a run, then sums are widened: two
// steps of 8-bit codes reach 2 * 128 * 127 = 32,512, eight of codes within [-32, 31] 8 * 32 * 127 = 32,512 as well.
#pragma once
#include "linear/panels.inl.h"
#include "unroll.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using Bytes = int8x16_t;

OCTAVO_INLINE Bytes load_bytes(const void* p) { return vld1q_s8(static_cast<const int8_t*>(p)); }

// Keeps a sum from the compiler, which would split it up and add anew for each load.
template <class T>
OCTAVO_INLINE void hide(T& x) {
  asm("" : "+r"(x));
}

// Four vectors from `at`, which goes on behind them, by one instruction.
OCTAVO_INLINE void load_four(const uint8_t*& at, Bytes (&out)[4]) {
  const int8x16x4_t four = vld1q_s8_x4(reinterpret_cast<const int8_t*>(at));
  out[0] = four.val[0], out[1] = four.val[1], out[2] = four.val[2], out[3] = four.val[3];
  at += 64;
  hide(at);
}

template <int R, int N>
struct Ints {
  I v[R][N];

  OCTAVO_INLINE void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) v[r][i] = vdupq_n_s32(0);
  }
};

#if defined(__ARM_FEATURE_DOTPROD)

template <int R, int N>
class Dots {
 public:
  // Adds the products of codes(i), N vectors, with lane `lane` of every row's inputs. `at`: which step of `count` to a sum this is.
  template <int lane, int at, int count, class Codes>
  static OCTAVO_INLINE void add(Ints<R, N>* sum, const Bytes (&x)[R], Codes&& codes) {
    each<0, N>([&](auto i) __attribute__((always_inline)) {
      const Bytes w = codes(i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum->v[r][i] = vdotq_laneq_s32(sum->v[r][i], w, x[r], lane);
    });
  }
};

#else

template <int R, int N>
class Dots {
 public:
  template <int lane, int at, int count, class Codes>
  OCTAVO_INLINE void add(Ints<R, N>* sum, const Bytes (&x)[R], Codes&& codes) {
    int8x16_t in[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) in[r] = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x[r]), lane));
    each<0, N>([&](auto i) __attribute__((always_inline)) {
      const Bytes w = codes(i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        if constexpr (at % count == 0) {
          low_[r][i] = vmull_s8(vget_low_s8(w), vget_low_s8(in[r]));
          high_[r][i] = vmull_high_s8(w, in[r]);
        } else {
          low_[r][i] = vmlal_s8(low_[r][i], vget_low_s8(w), vget_low_s8(in[r]));
          high_[r][i] = vmlal_high_s8(high_[r][i], w, in[r]);
        }
        if constexpr (at % count == count - 1)
          sum->v[r][i] = vaddq_s32(sum->v[r][i], vpaddq_s32(vpaddlq_s16(low_[r][i]), vpaddlq_s16(high_[r][i])));
      }
    });
  }

 private:
  int16x8_t low_[R][N], high_[R][N];
};

#endif

// Sixteen float16 to float32.
OCTAVO_INLINE void halves16(const uint8_t* p, F (&out)[4]) {
  const uint16_t* h = reinterpret_cast<const uint16_t*>(p);
  const uint16x8_t low = vld1q_u16(h), high = vld1q_u16(h + 8);
  out[0] = V::widen_f16(vget_low_u16(low));
  out[1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(low));
  out[2] = V::widen_f16(vget_low_u16(high));
  out[3] = vcvt_high_f32_f16(vreinterpretq_f16_u16(high));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
