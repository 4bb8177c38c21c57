// Step 6: the log-probability and the rank of the drawn token, and the best tokens with theirs.
#pragma once
#include "sample/list.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// What a row without log-probabilities, or without a token, leaves.
inline void report_nothing(const SampleArgs& a, int64_t r) {
  a.logprobs[r] = __builtin_nanf("");
  a.ranks[r] = 0;
  for (int64_t j = r * a.max_logprobs; j < (r + 1) * a.max_logprobs; ++j) {
    a.best_ids[j] = -1;
    a.best_logprobs[j] = __builtin_nanf("");
  }
}

inline bool is_reported(const SampleArgs& a, int64_t r) { return a.num_logprobs[r] >= 0; }

// How many of the best a row looks for; the first of them is the top.
inline int64_t num_best(const SampleArgs& a, int64_t r) { return a.num_logprobs[r] > 1 ? a.num_logprobs[r] : 1; }

// sums[segment] = sum16 of exp(y - top) over each segment of the range, absent tokens +0.
inline void sum_segments(const Source& s, const Range& range, float top, float* buffer, float* sums) {
  const F t = V::broadcast(top);
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    vec::Lanes16<V> lanes;
    for (int64_t i = 0; i < n; i += 16)
      for (int p = 0; p < vec::Lanes16<V>::kParts && i + p * kLanes < n; ++p) {
        const int64_t at = i + p * kLanes;
        const F y = tempered<V>(load_values(x + at, n - at), s.temperature);
        lanes.part[p] = V::add(lanes.part[p], vec::exp_below<V>(V::sub(y, t)));
      }
    sums[start / kVocabSegment] = lanes.fold();
  });
}

// The same of listed tokens.
inline void sum_segments(const List& list, float top, int64_t num_segments, float* sums) {
  int64_t i = 0;
  for (int64_t segment = 0; segment < num_segments; ++segment) {
    float lanes[16] = {};
    for (; i < list.n && list.id[i] / kVocabSegment == segment; ++i)
      lanes[list.id[i] % 16] = lanes[list.id[i] % 16] + vec::exp_below<vec::F32x1>(list.y[i] - top);
    sums[segment] = vec::F32x1::fold16(lanes);
  }
}

// log of the sum, segments added in order.
inline float log_total(const float* sums, int64_t num_segments) {
  float total = 0.0f;
  for (int64_t i = 0; i < num_segments; ++i) total = total + sums[i];
  return vec::log<vec::F32x1>(total);
}

// Whether a token goes before the one with this key and id.
inline bool goes_before(float y, int32_t id, uint32_t key, int32_t own) {
  const uint32_t k = descending_bits(y);
  return k < key || (k == key && id < own);
}

inline int32_t rank_among(const List& list, float y, int32_t token) {
  int32_t rank = 1;
  for (int64_t i = 0; i < list.n; ++i) rank += goes_before(list.y[i], list.id[i], descending_bits(y), token);
  return rank;
}

inline int32_t rank_among(const Source& s, const Range& range, float y, int32_t token, float* buffer) {
  const F own = V::broadcast(y);
  int32_t rank = 1;
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const F v = tempered<V>(load_values(x + i, n - i), s.temperature);
      uint32_t before = V::mask_bits(V::gt(v, own));
      if (start + i < token) {
        const int64_t lower = token - start - i;
        before |= V::mask_bits(V::eq(v, own)) & (lower < kLanes ? (1u << lower) - 1u : ~0u);
      }
      rank += __builtin_popcount(before);
    }
  });
  return rank;
}

// Puts the row's best tokens in order and writes them with their log-probabilities.
inline void write_best(const SampleArgs& a, int64_t r, List* best, float top, float log_sum) {
  for (int64_t i = 1; i < best->n; ++i) {
    const float y = best->y[i];
    const int32_t id = best->id[i];
    int64_t at = i;
    for (; at > 0 && goes_before(y, id, descending_bits(best->y[at - 1]), best->id[at - 1]); --at) {
      best->y[at] = best->y[at - 1];
      best->id[at] = best->id[at - 1];
    }
    best->y[at] = y;
    best->id[at] = id;
  }
  const int64_t want = smaller(a.num_logprobs[r], best->n);
  for (int64_t j = 0; j < want; ++j) {
    a.best_ids[r * a.max_logprobs + j] = best->id[j];
    a.best_logprobs[r * a.max_logprobs + j] = (best->y[j] - top) - log_sum;
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
