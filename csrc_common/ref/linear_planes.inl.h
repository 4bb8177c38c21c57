// linear_{q6k,q5k,q3k,q2k,q5g32} in plain C++: codes in bit planes (packed/planes.h), formulas of platforms/ops.py (linear).
#pragma once
#include "ref/linear.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Bits of input `i` of a chunk in one plane of b bits.
template <int b>
inline int plane_bits(const uint8_t* plane, int i, int lane) {
  const int v = i / 4;
  return plane[(v % b * 16 + lane) * 4 + i % 4] >> (b * (v / b)) & ((1 << b) - 1);
}

template <class Planes>
inline int plane_code(const uint8_t* chunk, int i, int lane) {
  int code = plane_bits<Planes::kLow>(chunk, i, lane);
  if constexpr (Planes::kHigh > 0) code |= plane_bits<Planes::kHigh>(chunk + 64 * Planes::kLow, i, lane) << Planes::kLow;
  return code - Planes::kZero;
}

template <class Planes>
inline void k_planes_record(const LinearArgs& a, int64_t row, int64_t block, const uint8_t* record, float* acc) {
  constexpr int kGroup = Planes::kGroup;
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + 256 * block;
  const int32_t* sums = a.sums + 16 * (row * a.lds + block);
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0, msum = 0;
    for (int g = 0; g < 256 / kGroup; ++g) {
      int32_t dot = 0, asum = 0;
      for (int i = kGroup * g; i < kGroup * (g + 1); ++i)
        dot += x[i] * plane_code<Planes>(record + i / 32 * Planes::kChunk, i % 32, lane);
      for (int i = kGroup / 16 * g; i < kGroup / 16 * (g + 1); ++i) asum += sums[i];
      const uint8_t scale = record[Planes::kScalesAt + 16 * g + lane];
      const int min = Planes::kPairs ? scale >> 4 : Planes::kMin ? record[Planes::kMinsAt + 16 * g + lane] : 0;
      isum += (Planes::kPairs ? scale & 15 : Planes::kSigned ? static_cast<int8_t>(scale) : scale) * dot;
      msum += min * asum;
    }
    k_end(a, row, block, lane, isum, msum, record + Planes::kHalvesAt, Planes::kMin, acc);
  }
}

template <bool has_min>
inline void q5g32_record(const LinearArgs& a, int64_t row, int64_t group, const uint8_t* record, float* acc) {
  using Planes = PlanesQ5g32<has_min>;
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + 32 * group;
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0;
    for (int i = 0; i < 32; ++i) isum += x[i] * plane_code<Planes>(record, i, lane);
    grouped_end(a, row, group, lane, isum, record + Planes::kHalvesAt, acc);
  }
}

}  // namespace

void linear_q6k(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q6k, k_planes_record<PlanesQ6k>);
}
void linear_q5k(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q5k, k_planes_record<PlanesQ5k>);
}
void linear_q3k(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q3k, k_planes_record<PlanesQ3k>);
}
void linear_q2k(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q2k, k_planes_record<PlanesQ2k>);
}
void linear_q5g32(const void* raw, const Step& step, const Lane& lane) {
  const bool has_min = static_cast<const LinearArgs*>(raw)->flags & kHasMin;
  run_records(raw, step, lane, PackedKind::q5g32, has_min ? q5g32_record<true> : q5g32_record<false>);
}

}  // namespace octavo::OCTAVO_ISA_NS
