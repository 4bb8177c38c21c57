// Vectors of SVE, whose length a compiler does not know: no array or struct holds them, so tiles of them are named variables.
//
// Kernels know the length as P, the vectors that 16 float32 take: 4, 2 or 1 for 128, 256 or 512 bits. Offsets then are multiples of
// a vector, which loads take as they are. One source serves all lengths, and with_parts picks the P of the processor.
#pragma once
#include <arm_sve.h>

#include <type_traits>

namespace octavo::OCTAVO_ISA_NS {
namespace {

#ifndef OCTAVO_INLINE
#define OCTAVO_INLINE __attribute__((always_inline)) inline
#endif

// References to sixteen variables: at<n>() in place of [n].
template <class T>
struct Registers {
  T &v0, &v1, &v2, &v3, &v4, &v5, &v6, &v7, &v8, &v9, &v10, &v11, &v12, &v13, &v14, &v15;

  template <int n>
  OCTAVO_INLINE T& at() const {
    static_assert(n >= 0 && n < 16);
    if constexpr (n == 0) return v0;
    if constexpr (n == 1) return v1;
    if constexpr (n == 2) return v2;
    if constexpr (n == 3) return v3;
    if constexpr (n == 4) return v4;
    if constexpr (n == 5) return v5;
    if constexpr (n == 6) return v6;
    if constexpr (n == 7) return v7;
    if constexpr (n == 8) return v8;
    if constexpr (n == 9) return v9;
    if constexpr (n == 10) return v10;
    if constexpr (n == 11) return v11;
    if constexpr (n == 12) return v12;
    if constexpr (n == 13) return v13;
    if constexpr (n == 14) return v14;
    if constexpr (n == 15) return v15;
  }
};
// Declares sixteen variables and their Registers `name`; those that nothing uses cost nothing.
#define OCTAVO_REGISTERS(T, name)                                                                                         \
  T name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7, name##8, name##9, name##10, name##11, name##12, \
      name##13, name##14, name##15;                                                                                       \
  const Registers<T> name {                                                                                               \
    name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7, name##8, name##9, name##10, name##11,           \
        name##12, name##13, name##14, name##15                                                                            \
  }

// Calls body(std::integral_constant<int, v>{}) for v = first .. last - 1.
template <int first, int last, class Body>
OCTAVO_INLINE void steps(Body&& body) {
  if constexpr (first < last) {
    body(std::integral_constant<int, first>{});
    steps<first + 1, last>(body);
  }
}
#define OCTAVO_STEP(i) (auto i) __attribute__((always_inline))

OCTAVO_INLINE svbool_t all() { return svptrue_b8(); }

// An instruction by lane reads the vector whose lane it takes from registers 0 to 7 only. Left to themselves, compilers keep sums
// there and move inputs in before every use; so `slot` names the input's register, and the instruction is written out.
#define OCTAVO_BY_LANE(slot, text, acc, w, x, lane)                                                  \
  if constexpr (slot == 0) OCTAVO_BY_LANE_OF("z0", text, acc, w, x, lane)                            \
  if constexpr (slot == 1) OCTAVO_BY_LANE_OF("z1", text, acc, w, x, lane)                            \
  if constexpr (slot == 2) OCTAVO_BY_LANE_OF("z2", text, acc, w, x, lane)                            \
  if constexpr (slot == 3) OCTAVO_BY_LANE_OF("z3", text, acc, w, x, lane)                            \
  if constexpr (slot == 4) OCTAVO_BY_LANE_OF("z4", text, acc, w, x, lane)                            \
  if constexpr (slot == 5) OCTAVO_BY_LANE_OF("z5", text, acc, w, x, lane)                            \
  if constexpr (slot == 6) OCTAVO_BY_LANE_OF("z6", text, acc, w, x, lane)                            \
  if constexpr (slot == 7) OCTAVO_BY_LANE_OF("z7", text, acc, w, x, lane)
#define OCTAVO_BY_LANE_OF(name, text, acc, w, x, lane)                           \
  {                                                                              \
    register auto input asm(name) = x;                                           \
    asm(text : "+w"(acc) : "w"(w), "w"(input), "i"(static_cast<int>(lane)));     \
  }

// acc += the four products of each lane of w with lane `lane` of x, of every 128 bits.
template <int slot, int lane>
OCTAVO_INLINE void dot_lane(svint32_t& acc, svint8_t w, svint8_t x) {
  OCTAVO_BY_LANE(slot, "sdot %0.s, %1.b, %2.b[%3]", acc, w, x, lane)
}
template <int slot, int lane>
OCTAVO_INLINE void fma_lane(svfloat32_t& acc, svfloat32_t w, svfloat32_t x) {
  OCTAVO_BY_LANE(slot, "fmla %0.s, %1.s, %2.s[%3]", acc, w, x, lane)
}
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
// acc += the low (the high) bfloat16 of each lane of w times bfloat16 `lane` of x, of every 128 bits; one rounding.
template <int slot, int lane>
OCTAVO_INLINE void fma_lane_low(svfloat32_t& acc, svbfloat16_t w, svbfloat16_t x) {
  OCTAVO_BY_LANE(slot, "bfmlalb %0.s, %1.h, %2.h[%3]", acc, w, x, lane)
}
template <int slot, int lane>
OCTAVO_INLINE void fma_lane_high(svfloat32_t& acc, svbfloat16_t w, svbfloat16_t x) {
  OCTAVO_BY_LANE(slot, "bfmlalt %0.s, %1.h, %2.h[%3]", acc, w, x, lane)
}
#endif

// Part `part` of 16 float16, as float32.
OCTAVO_INLINE svfloat32_t halves_part(const uint8_t* p, int part) {
  const svuint32_t bits = svld1uh_vnum_u32(all(), reinterpret_cast<const uint16_t*>(p), part);
  return svcvt_f32_f16_x(all(), svreinterpret_f16_u32(bits));
}

// Calls body(std::integral_constant<int, P>{}).
template <class Body>
inline void with_parts(Body&& body) {
  switch (svcntw()) {
    case 4: return body(std::integral_constant<int, 4>{});
    case 8: return body(std::integral_constant<int, 2>{});
    case 16: return body(std::integral_constant<int, 1>{});
  }
  __builtin_trap();  // no other length has the level (cpu_features.cpp)
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
