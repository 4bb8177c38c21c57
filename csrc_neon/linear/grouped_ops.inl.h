// linear_q4g32, linear_q8g32, linear_q5g32 and linear_i4: the formats that their flags ask for, run by the level's
// run_grouped<Format>(args, step, lane) over its own Halves32 and I4.
#pragma once
#include "exec/kernel.h"

namespace octavo::OCTAVO_ISA_NS {

void linear_q4g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_grouped<Halves32<NibbleCodes, true, 0>>(a, step, lane);
  if (a.flags & kZero8) return run_grouped<Halves32<SignedNibbles, false, 0>>(a, step, lane);
  run_grouped<Halves32<NibbleCodes, false, 0>>(a, step, lane);
}

void linear_q8g32(const void* raw, const Step& step, const Lane& lane) {
  run_grouped<Halves32<ByteCodes, false, 0>>(*static_cast<const LinearArgs*>(raw), step, lane);
}

void linear_q5g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_grouped<Halves32<PlaneCodes<4, 1, 0>, true, 0>>(a, step, lane);
  run_grouped<Halves32<PlaneCodes<4, 1, 0>, false, 16>>(a, step, lane);
}

void linear_i4(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasZeros) return run_grouped<I4<true>>(a, step, lane);
  run_grouped<I4<false>>(a, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
