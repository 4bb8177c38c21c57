// Loops that are unrolled by force.
#pragma once
#include <type_traits>

namespace octavo::OCTAVO_ISA_NS {
namespace {

#define OCTAVO_INLINE __attribute__((always_inline)) inline

// Calls body(std::integral_constant<int, v>{}) for v = first .. last - 1.
template <int first, int last, class Body>
OCTAVO_INLINE void each(Body&& body) {
  if constexpr (first < last) {
    body(std::integral_constant<int, first>{});
    each<first + 1, last>(body);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
