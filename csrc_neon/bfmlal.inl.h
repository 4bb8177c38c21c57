// BFMLALB and BFMLALT by element: they add the product of the even (odd) element of every pair of `w` and one element of `x`.
//
// As assembly: the element's vector must be one of the lower sixteen, which gcc 12 does not know of its own intrinsics.
#pragma once
#include <arm_neon.h>

#include "unroll.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int element>
OCTAVO_INLINE void add_even(float32x4_t& sum, bfloat16x8_t w, bfloat16x8_t x) {
  asm("bfmlalb %0.4s, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(x), "i"(element));
}
template <int element>
OCTAVO_INLINE void add_odd(float32x4_t& sum, bfloat16x8_t w, bfloat16x8_t x) {
  asm("bfmlalt %0.4s, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(x), "i"(element));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
