// The contract's sixteen-lane sums over any vector class: lane j takes values j, j + 16, ... in order from +0, then the
// lanes fold 8, 4, 2, 1 apart.
#pragma once

#include "scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

template <class V>
struct Lanes16 {
  static constexpr int kParts = 16 / V::kLanes;
  typename V::F part[kParts];

  Lanes16() {
    for (int i = 0; i < kParts; ++i) part[i] = V::zero();
  }
  float fold() const { return V::fold16(part); }
};

// sum16 of f(x[0]), f(x[1]), ...: `step(lane, values)` returns the lane's next value, e.g. V::add(lane, values) or
// V::fma(values, values, lane). Missing values of the last row read as +0, which must leave a lane as it is.
template <class V, class Step>
inline float sum16_by(const float* x, int64_t n, Step step) {
  Lanes16<V> lanes;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int p = 0; p < Lanes16<V>::kParts; ++p) lanes.part[p] = step(lanes.part[p], V::load(x + i + p * V::kLanes));
  for (int p = 0; i < n && p < Lanes16<V>::kParts; ++p, i += V::kLanes) {
    const int64_t left = n - i;
    lanes.part[p] = step(lanes.part[p], V::load_n(x + i, left < V::kLanes ? static_cast<int>(left) : V::kLanes));
  }
  return lanes.fold();
}

template <class V>
inline float sum16(const float* x, int64_t n) {
  return sum16_by<V>(x, n, [](typename V::F lane, typename V::F v) { return V::add(lane, v); });
}

template <class V>
inline float sum16_squares(const float* x, int64_t n) {
  return sum16_by<V>(x, n, [](typename V::F lane, typename V::F v) { return V::fma(v, v, lane); });
}

}  // namespace octavo::OCTAVO_ISA_NS::vec
