// greedy_head: the best token of each row straight from the product, without logits in memory (contract/greedy_head.h).
//
// The product's kernel is called as a lone thread would call it, for some panels at a time; no sum depends on how outputs are
// cut. The greatest value is found as `sample` finds it: NaN and -inf are no candidates, +inf counts as the largest float32,
// the lowest id of equals wins. Softcap comes before the comparison, because rounding can make capped logits equal.
#pragma once
#include "contract/greedy_head.h"
#include "sample/values.inl.h"
#include "vec/math.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Outputs of panels [from, from + count) for every row -> logits.
inline void compute(const GreedyHeadArgs& a, const Step& step, const Lane& lane, int64_t from, int64_t count, float* logits) {
  const int64_t rows = num_rows(a.linear.rows, step);
  LinearArgs some = a.linear;
  some.weight = static_cast<const uint8_t*>(a.linear.weight) + from * a.panel_bytes;
  some.n = smaller(16 * count, a.linear.n - 16 * from);
  if (some.bias) some.bias += 16 * from;
  some.y = logits;
  some.ldy = greedy_stride(rows);
  Share share{nullptr};
  share.held = 0;  // the one chunk of a lone thread
  const Lane alone{lane.thread, 1, &share, lane.scratch, lane.scratch_bytes};
  (rows >= a.many_from ? a.many : a.few)->run(&some, step, alone);
}

inline void cap_logits(float* x, int64_t n, float softcap) {
  const F cap = V::broadcast(softcap);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int count = static_cast<int>(smaller(kLanes, n - i));
    V::store_n(x + i, V::mul(cap, vec::tanh<V>(V::div(V::load_n(x + i, count), cap))), count);
  }
}

// Takes the greatest of n logits, of ids from `first` on, where it is greater than what was found among lower ids.
inline void fold(const float* x, int64_t n, int64_t first, float* value, int32_t* place) {
  F top = V::broadcast(-kInf);
  for (int64_t i = 0; i < n; i += kGroup) top = V::max(greatest_of(x + i, n - i), top);
  const float found = greatest_lane(top);
  if (!(found > *value)) return;
  *value = found;
  for (int64_t i = 0; i < n; i += kLanes) {
    const uint32_t equal = V::mask_bits(V::eq(load_values(x + i, n - i), V::broadcast(found)));
    if (equal) {
      *place = static_cast<int32_t>(first + i + __builtin_ctz(equal));
      return;
    }
  }
}

inline void look_in(const GreedyHeadArgs& a, const Step& step, const Lane& lane, int64_t part) {
  const int64_t rows = num_rows(a.linear.rows, step), panels = (a.linear.n + 15) / 16, stride = greedy_stride(rows);
  const int64_t from = part * panels / a.parts, to = (part + 1) * panels / a.parts;
  float* logits = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(a.room) + lane.thread * a.room_bytes);
  float* values = a.values + part * a.ldparts;
  int32_t* places = a.places + part * a.ldparts;
  for (int64_t r = 0; r < rows; ++r) values[r] = -kInf, places[r] = -1;
  const int64_t times = (to - from + greedy_panels(rows) - 1) / greedy_panels(rows);
  for (int64_t t = 0; t < times; ++t) {
    const int64_t begin = from + t * (to - from) / times, end = from + (t + 1) * (to - from) / times;
    const int64_t n = smaller(16 * end, a.linear.n) - 16 * begin;
    compute(a, step, lane, begin, end - begin, logits);
    for (int64_t r = 0; r < rows; ++r) {
      if (a.softcap != 0.0f) cap_logits(logits + r * stride, n, a.softcap);
      fold(logits + r * stride, n, 16 * begin, values + r, places + r);
    }
  }
}

// Parts come in the order of their ids, so that the first of equals has the lowest.
inline void pick_of(const GreedyHeadArgs& a, int64_t row) {
  Best best;
  for (int64_t part = 0; part < a.parts; ++part) {
    const float value = a.values[part * a.ldparts + row];
    if (value > best.value) best = {value, a.places[part * a.ldparts + row]};
  }
  a.y[row * a.ldy] = best.id;
}

}  // namespace

void greedy_head(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const GreedyHeadArgs*>(raw);
  const int64_t rows = num_rows(a.linear.rows, step);
  if (rows == 0) return;
  const bool is_look = a.stage == kGreedyLook;
  for (int64_t begin, end; lane.claim(is_look ? a.parts : rows, is_look ? 1 : lane.worthwhile(rows, a.parts), &begin, &end);)
    for (int64_t i = begin; i < end; ++i) {
      if (is_look)
        look_in(a, step, lane, i);
      else
        pick_of(a, i);
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
