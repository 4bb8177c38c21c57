// Codes of the packed layouts as signed bytes, by vectors of SVE: `code<P, step>(chunk, part, masks)` is inputs 4 * step .. of the 32
// of a chunk for the outputs of part `part` of a panel's P. As codes.inl.h.
//
// Masks are vectors (Codes::kMasks, set by keep_masks before a loop): AND takes a constant only where it may overwrite its input.
#pragma once
#include "linear/sve_panel.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using Masks = Registers<svuint8_t>;

// Hidden from compilers, which put the constant back.
template <class Codes>
OCTAVO_INLINE void keep_masks(const Masks& masks) {
  steps<0, static_cast<int>(sizeof(Codes::kMasks))>([&] OCTAVO_STEP(i) {
    svuint8_t mask = svdup_u8(Codes::kMasks[i]);
    asm("" : "+w"(mask));
    masks.template at<i>() = mask;
  });
}

struct ByteCodes {
  static constexpr int kChunk = 512, kShift = 0;
  static constexpr uint8_t kMasks[] = {0};
  template <int P, int step>
  static OCTAVO_INLINE svint8_t code(const uint8_t* chunk, int part, const Masks&) {
    return svld1_vnum_s8(all(), reinterpret_cast<const int8_t*>(chunk), P * step + part);
  }
};

// Bits of one plane of b bits, at bit `to` of their bytes; what lies above stays. `at`: vectors before the plane.
template <int P, int b, int step, int to>
OCTAVO_INLINE svuint8_t plane_bits(const uint8_t* chunk, int at, int part, svuint8_t mask) {
  constexpr int from = b * (step / b);
  svuint8_t x = svld1_vnum_u8(all(), chunk, P * (at + step % b) + part);
  if constexpr (from > to) x = svlsr_n_u8_x(all(), x, from - to);
  if constexpr (from < to) x = svlsl_n_u8_x(all(), x, to - from);
  if constexpr (from - to == 8 - b) return x;  // nothing is left beside them
  return svand_u8_x(all(), x, mask);
}

// One or two planes, less the zero point.
template <int low, int high, int zero>
struct PlaneCodes {
  static constexpr int kChunk = 64 * (low + high), kShift = 0;
  static constexpr uint8_t kMasks[] = {(1 << low) - 1, ((1 << high) - 1) << low};
  template <int P, int step>
  static OCTAVO_INLINE svint8_t code(const uint8_t* chunk, int part, const Masks& masks) {
    svuint8_t x = plane_bits<P, low, step, 0>(chunk, 0, part, masks.template at<0>());
    if constexpr (high > 0) x = svorr_u8_x(all(), x, plane_bits<P, high, step, low>(chunk, low, part, masks.template at<1>()));
    const svint8_t codes = svreinterpret_s8_u8(x);
    return zero ? svsub_n_s8_x(all(), codes, zero) : codes;
  }
};

using NibbleCodes = PlaneCodes<4, 0, 0>;

// Nibbles in two's complement (packed/flips.h): 16 times the code, which a shift of the sum takes off again.
struct SignedNibbles {
  static constexpr int kChunk = 256, kShift = 4;
  static constexpr uint8_t kMasks[] = {0xF0};
  template <int P, int step>
  static OCTAVO_INLINE svint8_t code(const uint8_t* chunk, int part, const Masks& masks) {
    const svint8_t pair = svld1_vnum_s8(all(), reinterpret_cast<const int8_t*>(chunk), P * (step % 4) + part);
    return step < 4 ? svlsl_n_s8_x(all(), pair, 4) : svand_s8_x(all(), pair, svreinterpret_s8_u8(masks.template at<0>()));
  }
};

// sum[r * N + i] += products of a chunk's inputs with `x`; parts part0 .. part0 + N - 1, steps first .. last - 1.
template <class Codes, int P, int R, int N, int first, int last>
OCTAVO_INLINE void add_steps(const Registers<svint32_t>& sum, const Masks& masks, const uint8_t* chunk, int part0, const int8_t* x,
                             int64_t ldx) {
  OCTAVO_REGISTERS(svint8_t, in);
  steps<0, R>([&] OCTAVO_STEP(r) {
    if constexpr (first < 4) in.template at<2 * r>() = svld1rq_s8(all(), x + r * ldx);
    if constexpr (last > 4) in.template at<2 * r + 1>() = svld1rq_s8(all(), x + r * ldx + 16);
  });
  constexpr bool kIsWhole = last - first == 8;
  steps<first, last>([&] OCTAVO_STEP(n) {
    constexpr int step = kIsWhole ? n / 2 + n % 2 * 4 : n;  // the two nibbles of a byte one after the other
    steps<0, N>([&] OCTAVO_STEP(i) {
      const svint8_t w = Codes::template code<P, step>(chunk, part0 + i, masks);
      steps<0, R>([&] OCTAVO_STEP(r) {
        constexpr int slot = 2 * r + step / 4;
        dot_lane<slot, step % 4>(sum.template at<r * N + i>(), w, in.template at<slot>());
      });
    });
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
