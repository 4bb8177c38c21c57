// Codes of the packed layouts (packed/panels.h, packed/planes.h) as signed bytes: `code<step>(chunk, part)` is inputs 4 * step .. of
// the 32 of a chunk for outputs 4 * part .. of a panel. kSteps: of products that an int16 sum takes (dots.inl.h).
#pragma once
#include "linear/dots.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct ByteCodes {
  static constexpr int kChunk = 512, kSteps = 2;
  template <int step>
  static OCTAVO_INLINE Bytes code(const uint8_t* chunk, int part) {
    return load_bytes(chunk + 64 * step + 16 * part);
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
  static constexpr int kChunk = 64 * (low + high), kSteps = 8;
  template <int step>
  static OCTAVO_INLINE Bytes code(const uint8_t* chunk, int part) {
    uint8x16_t x = plane_bits<low, step, 0>(chunk, part);
    if constexpr (high > 0) x = vorrq_u8(x, plane_bits<high, step, low>(chunk + 64 * low, part));
    const Bytes codes = vreinterpretq_s8_u8(x);
    return zero ? vsubq_s8(codes, vdupq_n_s8(zero)) : codes;
  }
};

using NibbleCodes = PlaneCodes<4, 0, 0>;

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
