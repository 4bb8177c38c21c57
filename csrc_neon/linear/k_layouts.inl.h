// Where the fields of K-quants' records are, for NEON's codes (codes.inl.h) and SVE's (sve_codes.inl.h).
#pragma once
#include "packed/planes.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int low, int high, int zero>
struct PlaneCodes;

// kGroup: inputs of a sub-scale; kPairs: a scale and its minimum share a byte.
template <class P>
struct KLayout {
  using Codes = PlaneCodes<P::kLow, P::kHigh, P::kZero>;
  static constexpr int kGroup = P::kGroup;
  static constexpr bool kMin = P::kMin, kPairs = P::kPairs, kSigned = P::kSigned, kFolds = P::kFolds;
  static constexpr int64_t kScalesAt = P::kScalesAt, kMinsAt = P::kMinsAt, kHalvesAt = P::kHalvesAt, kBytes = P::kBytes;
};
struct Q4kLayout {
  using Codes = PlaneCodes<4, 0, 0>;
  static constexpr int kGroup = 32;
  static constexpr bool kMin = true, kPairs = false, kSigned = false, kFolds = false;
  static constexpr int64_t kScalesAt = 2048, kMinsAt = 2176, kHalvesAt = 2304, kBytes = 2368;
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
