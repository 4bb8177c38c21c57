// Codes of the packed layouts (packed/panels.h, packed/planes.h) as signed bytes: `code<step>(chunk, part)` is inputs 4 * step .. of
// the 32 of a chunk for outputs 4 * part .. of a panel. kSteps: of products that an int16 sum takes (dots.inl.h). kLineSteps: steps whose
// codes a line of 64 bytes holds, all four parts of them (0: codes are not in one plane); `of_line<step>(vector of a part)` gives them.
#pragma once
#include "linear/dots.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct ByteCodes {
  static constexpr int kChunk = 512, kSteps = 2, kLineSteps = 1;
  template <int step>
  static OCTAVO_INLINE Bytes code(const uint8_t* chunk, int part) {
    return load_bytes(chunk + 64 * step + 16 * part);
  }
  template <int step>
  static OCTAVO_INLINE Bytes of_line(Bytes x) {
    return x;
  }
};

// Bits of one plane of b bits, at bit `to` of their bytes; what lies above stays.
template <int b, int step, int to>
OCTAVO_INLINE uint8x16_t plane_bits(const uint8_t* plane, int part) {
  constexpr int from = b * (step / b), mask = ((1 << b) - 1) << to;
  uint8x16_t x = vld1q_u8(plane + 64 * (step % b) + 16 * part);
  if constexpr (from > to) x = vshrq_n_u8(x, from - to);
  if constexpr (from < to) x = vshlq_n_u8(x, to - from);
  if constexpr (from - to == 8 - b) return x;  // nothing is left beside them
  return vandq_u8(x, vdupq_n_u8(mask));
}

// One or two planes, less the zero point.
template <int low, int high, int zero>
struct PlaneCodes {
  static constexpr int kChunk = 64 * (low + high), kSteps = 8, kLineSteps = low == 4 && high == 0 ? 2 : 0;
  template <int step>
  static OCTAVO_INLINE Bytes code(const uint8_t* chunk, int part) {
    uint8x16_t x = plane_bits<low, step, 0>(chunk, part);
    if constexpr (high > 0) x = vorrq_u8(x, plane_bits<high, step, low>(chunk + 64 * low, part));
    const Bytes codes = vreinterpretq_s8_u8(x);
    return zero ? vsubq_s8(codes, vdupq_n_s8(zero)) : codes;
  }
  template <int step>
  static OCTAVO_INLINE Bytes of_line(Bytes x) {
    const uint8x16_t bits = vreinterpretq_u8_s8(x);
    return vreinterpretq_s8_u8(step < 4 ? vandq_u8(bits, vdupq_n_u8(15)) : vshrq_n_u8(bits, 4));
  }
};

using NibbleCodes = PlaneCodes<4, 0, 0>;

// Nibbles in two's complement (packed/flips.h): with SDOT 16 times the code, which an exact conversion takes off again; else the code,
// of which an int16 holds more products.
struct SignedNibbles {
  static constexpr int kChunk = 256, kLineSteps = 2;
#if defined(__ARM_FEATURE_DOTPROD)
  static constexpr int kSteps = 8, kShift = 4;
#else
  static constexpr int kSteps = 8, kShift = 0;
#endif
  template <int step>
  static OCTAVO_INLINE Bytes code(const uint8_t* chunk, int part) {
    return of_line<step>(load_bytes(chunk + 64 * (step % 4) + 16 * part));
  }
  template <int step>
  static OCTAVO_INLINE Bytes of_line(Bytes pair) {
    const Bytes high = step < 4 ? vshlq_n_s8(pair, 4) : vandq_s8(pair, vdupq_n_s8(static_cast<int8_t>(0xF0)));
    return kShift ? high : vshrq_n_s8(step < 4 ? high : pair, 4);
  }
};

// float(isum), exact.
template <class Codes>
struct Shift {
  static constexpr int kBits = 0;
};
template <>
struct Shift<SignedNibbles> {
  static constexpr int kBits = SignedNibbles::kShift;
};
template <class Codes>
OCTAVO_INLINE F to_float(I isum) {
  if constexpr (Shift<Codes>::kBits > 0) return vcvtq_n_f32_s32(isum, Shift<Codes>::kBits);
  return V::cvt_f32(isum);
}

// isum[r][i] += products of a chunk's inputs with `x`; parts part0 .. part0 + N - 1, steps first .. last - 1.
template <class Codes, int first, int last, int R, int N>
OCTAVO_INLINE void add_steps(Ints<R, N>* isum, const uint8_t* chunk, int part0, const int8_t* x, int64_t ldx) {
  Bytes in[2][R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if constexpr (first < 4) in[0][r] = load_bytes(x + r * ldx);
    if constexpr (last > 4) in[1][r] = load_bytes(x + r * ldx + 16);
  }
  constexpr bool kIsWhole = last - first == 8;
  Dots<R, N> dots;
#if defined(__ARM_FEATURE_DOTPROD)
  if constexpr (N == 4 && kIsWhole && Codes::kLineSteps > 0) {  // line by line, each read once
    each<0, 8 / Codes::kLineSteps>([&](auto line) __attribute__((always_inline)) {
      Bytes parts[4];
      load_four(chunk, parts);
      each<0, Codes::kLineSteps>([&](auto half) __attribute__((always_inline)) {
        constexpr int step = line + 4 * half;
        dots.template add<step % 4, 0, 1>(isum, in[step / 4], [&](auto i) __attribute__((always_inline)) {
          return Codes::template of_line<step>(parts[i]);
        });
      });
    });
    return;
  }
#endif
  each<first, last>([&](auto n) __attribute__((always_inline)) {
    constexpr int step = kIsWhole ? n / 2 + n % 2 * 4 : n;  // the two nibbles of a byte one after the other
    constexpr int count = Codes::kSteps < last - first ? Codes::kSteps : last - first;
    dots.template add<step % 4, n - first, count>(isum, in[step / 4], [&](auto i) __attribute__((always_inline)) {
      return Codes::template code<step>(chunk, part0 + i);
    });
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
