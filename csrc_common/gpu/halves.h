// Two float16 in a word, and codes that become such pairs by exact arithmetic: every code of 8 bits or fewer is a float16.
#pragma once

#include "gpu/packed.h"

namespace octavo::gpu {

#if defined(__HIP__)
OCTAVO_GPU_FN int32_t sub_halves(int32_t a, int32_t b) {
  using H2 = _Float16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(int32_t, __builtin_bit_cast(H2, a) - __builtin_bit_cast(H2, b));
}
OCTAVO_GPU_FN int32_t mul_halves(int32_t a, int32_t b) {
  using H2 = _Float16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(int32_t, __builtin_bit_cast(H2, a) * __builtin_bit_cast(H2, b));
}
#elif defined(__CUDACC__)
OCTAVO_GPU_FN int32_t sub_halves(int32_t a, int32_t b) {
  int32_t y;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
OCTAVO_GPU_FN int32_t mul_halves(int32_t a, int32_t b) {
  int32_t y;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
#else
template <class Op>
inline int32_t each_half(int32_t a, int32_t b, Op&& op) {
  uint32_t y = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto half = [&](int32_t word) { return vec::float_of_f16(static_cast<uint16_t>(static_cast<uint32_t>(word) >> shift)); };
    y |= static_cast<uint32_t>(vec::f16_of(op(half(a), half(b)))) << shift;
  }
  return static_cast<int32_t>(y);
}
inline int32_t sub_halves(int32_t a, int32_t b) {
  return each_half(a, b, [](float x, float y) { return x - y; });
}
inline int32_t mul_halves(int32_t a, int32_t b) {
  return each_half(a, b, [](float x, float y) { return x * y; });
}
#endif

// Codes under a mask as float16 1024 + code. Of AMD's chips before RDNA, an instruction of three operands takes one constant from
// outside a lane's registers, so that clang, which keeps both constants there, makes two instructions of it.
OCTAVO_GPU_FN int32_t halves_from(uint32_t codes, uint32_t mask) {
#if defined(__HIP__) && defined(__GFX9__)
  uint32_t y;
  __asm__("v_and_or_b32 %0, %1, %2, %3" : "=v"(y) : "v"(codes), "s"(mask), "v"(0x64006400u));
  return static_cast<int32_t>(y);
#else
  return static_cast<int32_t>((codes & mask) | 0x64006400u);
#endif
}

// 1024 + code is float16 0x6400 | code. Taking 1024 and a zero point off again is exact.
OCTAVO_GPU_FN int32_t halves_of_zero(int32_t zero) { return (0x6400 + zero) * 0x00010001; }

// A unit of group g of a record, less the zero point that `minus` stands for (codes of 8 bits are signed: + 128), in the order of
// inputs 0, 2, 1, 3, 4, 6, 5, 7.
OCTAVO_GPU_FN void halves_of_codes(const Codes4::Raw& raw, int g, int32_t minus, int32_t (&w)[4]) {
  const auto codes = static_cast<uint32_t>(raw.of4.w[g]);
  constexpr int kShifts[4] = {0, 8, 4, 12};
  for (int i = 0; i < 4; ++i)
    w[i] = sub_halves(halves_from(codes >> kShifts[i], 0x000F000Fu), minus);
}
OCTAVO_GPU_FN void halves_of_codes(const Codes8::Raw& raw, int g, int32_t minus, int32_t (&w)[4]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t codes = static_cast<uint32_t>(raw.half[g / 2].w[g % 2 * 2 + i / 2]) ^ 0x80808080u;
    w[i] = sub_halves(halves_from(codes >> 8 * (i % 2), 0x00FF00FFu), minus);
  }
}

// Numbers E4M3 of a unit, and E2M1: their bits moved to where float16 has them are 2^-8 and 2^-14 of the number, denormals too. In
// the same order of inputs.
OCTAVO_GPU_FN void halves_of_e4m3(const int32_t (&bytes)[2], int32_t (&w)[4]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = static_cast<uint32_t>(bytes[i / 2]) >> 8 * (i % 2);
    w[i] = mul_halves(static_cast<int32_t>((two & 0x00800080u) << 8 | (two & 0x007F007Fu) << 7), 0x5C005C00);
  }
}
OCTAVO_GPU_FN void halves_of_e2m1(int32_t codes, int32_t (&w)[4]) {
  constexpr int kShifts[4] = {0, 8, 4, 12};
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = static_cast<uint32_t>(codes) >> kShifts[i];
    w[i] = mul_halves(static_cast<int32_t>((two & 0x00080008u) << 12 | (two & 0x00070007u) << 9), 0x74007400);
  }
}

}  // namespace octavo::gpu
