// What products with weights of small floats share: E4M3 in rows or groups with float32 scales (f8row, f8g128), and OCP's MX formats,
// whose scales are powers of two (mxfp8, mxfp4). Inputs are E4M3 in the same groups (gpu/prepare.inl.h).
#pragma once

#include "gpu/packed.h"
#include "gpu/rows.inl.h"
#include "vec/fp8.h"

namespace octavo::gpu {

// How weights of small floats are made up. `blocks`: of 32 inputs in a group (0: a row is one group).
template <class CodesOf, int blocks_of, bool is_mx_of>
struct F8 {
  using Codes = CodesOf;
  static constexpr int blocks = blocks_of;
  static constexpr bool is_mx = is_mx_of, is4 = Codes::kRecordBytes == Codes4::kRecordBytes;
  static OCTAVO_GPU_FN int64_t group(int64_t k) { return blocks ? 32 * blocks : k; }
  // Codes of unit q of a block of a record, one a byte.
  static OCTAVO_GPU_FN void unit(const uint8_t* record, int block, int q, int out, int32_t (&w)[2]) {
    const uint8_t* at = record + Codes::unit_at(32 * block + q * kUnit, out);
    if constexpr (is4) {
      const auto codes = *reinterpret_cast<const uint32_t*>(at);
      w[0] = static_cast<int32_t>(codes & 0x0F0F0F0Fu), w[1] = static_cast<int32_t>(codes >> 4 & 0x0F0F0F0Fu);
    } else {
      const Words2 codes = *reinterpret_cast<const Words2*>(at);
      w[0] = codes.w[0], w[1] = codes.w[1];
    }
  }
  static OCTAVO_GPU_FN float number(uint8_t code) { return is4 ? vec::float_of_e2m1(code) : vec::E4M3FN::decode(code); }
};
using F8Row = F8<Codes8, 0, false>;
using F8G128 = F8<Codes8, 4, false>;
using MxF8 = F8<Codes8, 1, true>;
using MxF4 = F8<Codes4, 1, true>;

// 2^(code - 127) as the product of two normal numbers, of which this is the first or the second.
OCTAVO_GPU_FN float first_of_e8m0(int code) { return float_of_word(((code >> 1) + 64) << 23); }
OCTAVO_GPU_FN float second_of_e8m0(int code) { return float_of_word((code - (code >> 1) + 63) << 23); }

// The product of a group joins the row's sum. `scale`: of the weights, a float32 or E8M0.
template <class Format>
OCTAVO_GPU_FN float join_f8(float acc, float p, const void* scales, int64_t entry, float s) {
  if constexpr (Format::is_mx) {
    const int code = static_cast<const uint8_t*>(scales)[entry];
    return V::fma(p * first_of_e8m0(code) * s, second_of_e8m0(code), acc);
  } else {
    return V::fma(p, s * static_cast<const float*>(scales)[entry], acc);
  }
}

}  // namespace octavo::gpu
