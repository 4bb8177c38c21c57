// The linear ops with integer weights at one level: q4g32, q8g32, q4k.
#pragma once
#include "linear/linear_grouped.inl.h"
#include "linear/linear_q4k.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void linear_q4g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_groups<Q4g32<kHasMin>>(a, step, lane);
  if (a.flags & kZero8) return run_groups<Q4g32<kZero8>>(a, step, lane);
  run_groups<Q4g32<0>>(a, step, lane);
}

void linear_q8g32(const void* raw, const Step& step, const Lane& lane) {
  run_groups<Q8g32>(*static_cast<const LinearArgs*>(raw), step, lane);
}

void linear_q4k(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_kernel<Q4k>(a, step, lane, panel_bytes(PackedKind::q4k, 0, a.k));
}

}  // namespace octavo::OCTAVO_ISA_NS
