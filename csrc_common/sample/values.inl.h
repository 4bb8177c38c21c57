// A row's values as steps 0 to 3 leave them (docs/numerics.md, "Sampling"): cleaned, edited by the row's lists, tempered.
//
// A row is walked in segments of kVocabSegment ids. One without lists is read where it lies; an edited one is copied segment
// by segment into a buffer that stays in L1, and the lists are applied there: nothing as long as the vocabulary is written.
// -inf stands for a token that does not exist or may not be drawn; every other value is finite.
#pragma once
#include <cstdint>

#include "contract/sample.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
using F = V::F;
using I = V::I;
constexpr int kLanes = V::kLanes;
constexpr uint32_t kAllLanes = (1u << kLanes) - 1u;
constexpr int kGroup = 4 * kLanes;  // values looked at together
constexpr int64_t kVocabSegment = 4096;
constexpr float kLargest = 0x1.fffffep+127f;
constexpr float kInf = __builtin_inff();

// Token ids [begin, end) of a row; begin is a multiple of kVocabSegment.
struct Range {
  int64_t begin, end;
};

// Where a row's values come from: its logits, its lists if `is_edited`, and the temperature that divides them.
struct Source {
  const SampleArgs& a;
  int64_t r;
  bool is_edited;
  float temperature;

  const float* logits() const { return a.logits + r * a.ld; }
};

inline bool has_lists(const SampleArgs& a, int64_t r) {
  return a.mask_row[r] >= 0 || a.banned_start[r] != a.banned_start[r + 1] || a.bias_start[r] != a.bias_start[r + 1] ||
         a.count_start[r] != a.count_start[r + 1];
}

inline Source raw_source(const SampleArgs& a, int64_t r) { return {a, r, false, 1.0f}; }
inline Source edited_source(const SampleArgs& a, int64_t r) {
  return {a, r, has_lists(a, r), a.temperature[r] > 0.0f ? a.temperature[r] : 1.0f};
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Infinities, which penalties or a tiny temperature can make, become the largest float32 of their sign.
inline float bounded(float v) { return v > kLargest ? kLargest : v < -kLargest ? -kLargest : v; }

// Step 0: NaN and -inf do not exist, +inf becomes the largest float32.
template <class W>
inline typename W::F cleaned(typename W::F v) {
  return W::min(W::max(v, W::broadcast(-kInf)), W::broadcast(kLargest));
}

// The cleaned values at p, n of them if that is less than kLanes; -inf in the other lanes.
inline F load_values(const float* p, int64_t n) {
  if (n >= kLanes) return cleaned<V>(V::load(p));
  return V::select(V::bits_mask((1u << n) - 1u), cleaned<V>(V::load_n(p, static_cast<int>(n))), V::broadcast(-kInf));
}

// Lane by lane the greatest of the (at most kGroup) cleaned values at p. max takes the second operand where the first is NaN.
inline F greatest_of(const float* p, int64_t n) {
  F top = V::broadcast(-kInf);
  if (n >= kGroup) {
    for (int i = 0; i < kGroup; i += kLanes) top = V::max(V::load(p + i), top);
    return V::min(top, V::broadcast(kLargest));
  }
  for (int64_t i = 0; i < n; i += kLanes) top = V::max(load_values(p + i, n - i), top);
  return top;
}

// Step 3. Never decreasing in x; temperature 1 changes nothing.
template <class W>
inline typename W::F tempered(typename W::F x, float temperature) {
  if (temperature == 1.0f) return x;
  const typename W::F none = W::broadcast(-kInf);
  const typename W::F y = W::div(x, W::broadcast(temperature));
  const typename W::F finite = W::min(W::max(y, W::broadcast(-kLargest)), W::broadcast(kLargest));
  return W::select(W::gt(x, none), finite, none);
}

// A bound on x: no value at or below it is above `y` once tempered. Nearly the greatest such bound, or -inf.
inline float bound_below(float y, float temperature) {
  if (temperature == 1.0f) return y;
  float x = bounded(y * temperature);
  for (int i = 0; i < 4; ++i) {
    if (tempered<vec::F32x1>(x, temperature) <= y) return x;
    x = x - vec::F32x1::abs(x) * 0x1p-22f;
  }
  return -kInf;
}

// Calls body(entry, place) for the entries of a row's list, sorted by id, whose ids lie in [start, start + n).
template <class Body>
inline void each_entry(const int32_t* starts, const int32_t* ids, int64_t r, int64_t start, int64_t n, Body&& body) {
  int32_t low = starts[r], high = starts[r + 1];
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (ids[middle] < start)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < starts[r + 1] && ids[low] < start + n; ++low) body(low, ids[low] - start);
}

// Steps 1 and 2 on the segment at `start`: mask, bans, bias, penalties.
inline void edit(const Source& s, int64_t start, int64_t n, float* x) {
  const SampleArgs& a = s.a;
  const int64_t r = s.r;
  if (a.mask_row[r] >= 0) {
    const uint32_t* words = a.masks + a.mask_row[r] * a.mask_words + start / 32;
    for (int64_t i = 0; i < n; i += kLanes)
      V::store(x + i, V::select(V::bits_mask(words[i / 32] >> (i % 32)), V::load(x + i), V::broadcast(-kInf)));
  }
  each_entry(a.banned_start, a.banned_ids, r, start, n, [&](int32_t, int64_t at) { x[at] = -kInf; });
  each_entry(a.bias_start, a.bias_ids, r, start, n, [&](int32_t j, int64_t at) {
    if (x[at] > -kInf) x[at] = bounded(x[at] + a.bias_values[j]);
  });
  const float repetition = a.repetition[r], presence = a.presence[r], frequency = a.frequency[r];
  each_entry(a.count_start, a.count_ids, r, start, n, [&](int32_t j, int64_t at) {
    float v = x[at];
    if (!(v > -kInf)) return;
    if (repetition != 1.0f) v = v > 0.0f ? v / repetition : v * repetition;
    if (a.count_output[j] > 0) {
      if (presence != 0.0f) v = v - presence;
      if (frequency != 0.0f) v = v - frequency * static_cast<float>(a.count_output[j]);
    }
    x[at] = bounded(v);
  });
}

// Calls body(x, start, n) for every segment of the range: untempered values x[0 .. n) of the ids from `start` on, to be read
// with load_values. `buffer` holds kVocabSegment values.
template <class Body>
inline void each_segment(const Source& s, const Range& range, float* buffer, Body&& body) {
  for (int64_t start = range.begin; start < range.end; start += kVocabSegment) {
    const int64_t n = smaller(range.end - start, kVocabSegment);
    const float* x = s.logits() + start;
    if (s.is_edited) {
      for (int64_t i = 0; i < n; i += kLanes) V::store(buffer + i, load_values(x + i, n - i));
      edit(s, start, n, buffer);
      x = buffer;
    }
    body(x, start, n);
  }
}

// The greatest value and the lowest id that has it; id -1 where there is none.
struct Best {
  float value = -kInf;
  int32_t id = -1;
};

inline float greatest_lane(F v) {
  float lanes[kLanes], best = -kInf;
  V::store(lanes, v);
  for (float lane : lanes) best = lane > best ? lane : best;
  return best;
}

inline Best best_of(const Source& s, const Range& range, float* buffer) {
  Best best;
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    F top = V::broadcast(-kInf);
    for (int64_t i = 0; i < n; i += kGroup) top = V::max(greatest_of(x + i, n - i), top);
    const float value = greatest_lane(top);
    if (!(value > best.value)) return;
    best.value = value;
    for (int64_t i = 0; i < n; i += kLanes) {
      const uint32_t equal = V::mask_bits(V::eq(load_values(x + i, n - i), V::broadcast(value)));
      if (equal) {
        best.id = static_cast<int32_t>(start + i + __builtin_ctz(equal));
        return;
      }
    }
  });
  return best;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
