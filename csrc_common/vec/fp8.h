// Numbers of eight bits and fewer: decode and encode of every dialect of quant/fp8.py and quant/mx.py, by arithmetic on bits that
// needs no table and no instruction of its own. For processors and GPUs alike; included by whoever knows OCTAVO_FN (vec/scalar.h).
#pragma once

#include "vec/scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

// `top`: the code of the largest finite value.
template <int fraction_bits, int bias, int top, bool is_fnuz>
struct Fp8 {
  static constexpr bool kHasInfinity = fraction_bits == 2 && !is_fnuz;
  static constexpr uint32_t kNan = is_fnuz ? 0x80 : 0x7F;

  // Exact.
  static OCTAVO_FN float decode(uint8_t code) {
    const uint32_t magnitude = code & 0x7Fu, sign = static_cast<uint32_t>(code & 0x80u) << 24;
    if (is_fnuz && code == 0x80) return float_of(0x7FC00000u);
    if (!is_fnuz && magnitude > static_cast<uint32_t>(top))
      return float_of(sign | (kHasInfinity && magnitude == static_cast<uint32_t>(top) + 1 ? 0x7F800000u : 0x7FC00000u));
    if (magnitude >> fraction_bits) return float_of(sign | ((magnitude << (23 - fraction_bits)) + ((127u - bias) << 23)));
    return float_of(sign | bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * float_of((128u - bias - fraction_bits) << 23)));
  }

  // Nearest, ties to the even code; NaN stays NaN. A magnitude that rounds to more than the largest becomes that where
  // `saturate`, else infinity or, without one, NaN.
  static OCTAVO_FN uint8_t encode(float x, bool saturate) {
    const uint32_t u = bits_of(x), magnitude = u & 0x7FFFFFFFu, sign = u >> 24 & 0x80u;
    constexpr uint32_t kLowest = 128 - bias, kShift = 23 - fraction_bits;  // exponent field of the smallest normal number
    uint32_t code;
    if (magnitude > 0x7F800000u) {
      code = kNan;
    } else {
      const uint32_t exponent = magnitude >> 23;
      if (exponent >= kLowest) {
        const uint32_t v = magnitude - ((kLowest - 1) << 23);
        code = (v + (1u << (kShift - 1)) - 1u + (v >> kShift & 1u)) >> kShift;
      } else if (kShift + kLowest - exponent > 24 || exponent == 0) {
        code = 0;
      } else {
        const uint32_t shift = kShift + kLowest - exponent, whole = (magnitude & 0x7FFFFFu) | 0x800000u;
        code = (whole + (1u << (shift - 1)) - 1u + (whole >> shift & 1u)) >> shift;
      }
      if (code > static_cast<uint32_t>(top)) code = saturate ? top : kHasInfinity ? top + 1 : kNan;
    }
    return static_cast<uint8_t>(is_fnuz && (code == 0 || code == kNan) ? code : code | sign);
  }
};

using E4M3FN = Fp8<3, 7, 0x7E, false>;
using E5M2 = Fp8<2, 15, 0x7B, false>;
using E4M3FNUZ = Fp8<3, 8, 0x7F, true>;
using E5M2FNUZ = Fp8<2, 16, 0x7F, true>;

// The E4M3FN code of a number within 448: nearest, ties to the even code, no -0. Without branches, for vectors.
OCTAVO_FN uint8_t e4m3_of(float x) {
  const uint32_t u = bits_of(x), magnitude = u & 0x7FFFFFFFu;
  const uint32_t normal = ((magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  const uint32_t denormal = bits_of(float_of(magnitude) + 0x1p+14f) - bits_of(0x1p+14f);  // whole 2^-9, rounded by the sum
  const uint32_t code = magnitude < 0x3C800000u ? denormal : normal;
  return static_cast<uint8_t>(code == 0 ? 0u : code | (u >> 24 & 0x80u));
}

// The FNUZ code of half the value; only for finite codes.
OCTAVO_FN uint8_t fnuz_of(uint8_t code) { return code == 0x80 ? 0 : code; }

// 2^(code - 127), a denormal for 0; NaN for 255.
OCTAVO_FN float float_of_e8m0(uint8_t code) {
  return float_of(code == 255 ? 0x7FC00000u : code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

// 0, 0.5, 1, 1.5, 2, 3, 4, 6 by the low three bits, negated by the fourth.
OCTAVO_FN float float_of_e2m1(uint8_t code) {
  const uint32_t magnitude = code & 7u, sign = static_cast<uint32_t>(code & 8u) << 28;
  return float_of(sign | (magnitude < 2 ? magnitude * 0x3F000000u : (magnitude << 22) + 0x3F000000u));
}

}  // namespace octavo::OCTAVO_ISA_NS::vec
