// One row of logits on its way to a token: values in a padded copy, where -inf is what may not be drawn, and the greatest
// value of every 64.
//
// Maxima are bounds: after a filter a block may hold less than its maximum says, never more; the greatest of all is exact
// while the best token stays, which only typical-p may drop.
#pragma once
#include <cstdint>

#include "contract/sample.h"
#include "vec/math.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
constexpr int64_t kBlock = 64;  // tokens; a multiple of four vectors' lanes
constexpr float kLargest = 0x1.fffffep+127f;
constexpr float kInf = __builtin_inff();
static_assert(kBlock % (4 * V::kLanes) == 0 || V::kLanes == 1);

struct Entry {
  uint64_t key;
  uint64_t mass;
};

struct Row {
  const SampleArgs& a;
  int64_t r;
  const float* raw;  // the logits as given
  float* x;          // values, [padded]
  float* exps;       // [padded]
  float* maxima;     // [padded / kBlock]
  Entry* entries;    // [padded]
  Entry* spare;      // [padded]

  int64_t num_blocks() const { return (a.vocab + kBlock - 1) / kBlock; }
};

inline float flushed(float v) { return v + 0.0f; }  // DAZ and FTZ make it the contract's flush

// Infinities, which penalties or a tiny temperature can make, become the largest float32 of their sign.
inline float bounded(float v) { return v > kLargest ? kLargest : v < -kLargest ? -kLargest : v; }

// Step 0: NaN and -inf do not exist, +inf becomes the largest float32.
void clean(const Row& row) {
  constexpr int L = V::kLanes;
  const V::F none = V::broadcast(-kInf), most = V::broadcast(kLargest);
  int64_t i = 0;
  for (; i + L <= row.a.vocab; i += L) {
    const V::F v = V::load(row.raw + i);
    V::store(row.x + i, V::select(V::gt(v, none), V::add(V::min(v, most), V::zero()), none));
  }
  for (; i < row.a.vocab; ++i) {
    const float v = row.raw[i];
    row.x[i] = v > -kInf ? flushed(v < kLargest ? v : kLargest) : -kInf;
  }
  for (; i < row.num_blocks() * kBlock; ++i) row.x[i] = -kInf;
}

// Steps 1 and 2: mask, bans, bias, penalties.
void penalize(const Row& row) {
  const SampleArgs& a = row.a;
  const int64_t r = row.r;
  if (a.mask_row[r] >= 0) {
    const uint32_t* mask = a.masks + a.mask_row[r] * a.mask_words;
    for (int64_t i = 0; i < a.vocab; ++i)
      if (!((mask[i >> 5] >> (i & 31)) & 1u)) row.x[i] = -kInf;
  }
  for (int32_t j = a.banned_start[r]; j < a.banned_start[r + 1]; ++j) row.x[a.banned_ids[j]] = -kInf;
  for (int32_t j = a.bias_start[r]; j < a.bias_start[r + 1]; ++j) {
    float& v = row.x[a.bias_ids[j]];
    if (v > -kInf) v = bounded(v + a.bias_values[j]);
  }
  const float repetition = a.repetition[r], presence = a.presence[r], frequency = a.frequency[r];
  for (int32_t j = a.count_start[r]; j < a.count_start[r + 1]; ++j) {
    float v = row.x[a.count_ids[j]];
    if (!(v > -kInf)) continue;
    if (repetition != 1.0f) v = v > 0.0f ? v / repetition : v * repetition;
    if (a.count_output[j] > 0) {
      if (presence != 0.0f) v = v - presence;
      if (frequency != 0.0f) v = v - frequency * static_cast<float>(a.count_output[j]);
    }
    row.x[a.count_ids[j]] = bounded(v);
  }
}

// Step 3.
void divide(const Row& row, float temperature) {
  const V::F t = V::broadcast(temperature), most = V::broadcast(kLargest), least = V::broadcast(-kLargest);
  const V::F none = V::broadcast(-kInf);
  for (int64_t i = 0; i < row.num_blocks() * kBlock; i += V::kLanes) {
    const V::F v = V::load(row.x + i);
    V::store(row.x + i, V::select(V::gt(v, none), V::max(V::min(V::div(v, t), most), least), none));
  }
}

void find_maxima(const Row& row) {
  constexpr int L = V::kLanes;
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    const float* x = row.x + b * kBlock;
    V::F top = V::load(x);
    for (int64_t i = L; i < kBlock; i += L) top = V::max(V::load(x + i), top);
    float lanes[L];
    V::store(lanes, top);
    float best = lanes[0];
    for (int i = 1; i < L; ++i) best = lanes[i] > best ? lanes[i] : best;
    row.maxima[b] = best;
  }
}

// The greatest value; -inf if none may be drawn.
float top_of(const Row& row) {
  float top = -kInf;
  for (int64_t b = 0; b < row.num_blocks(); ++b) top = row.maxima[b] > top ? row.maxima[b] : top;
  return top;
}

// The lowest id of the greatest value; -1 if none may be drawn.
int32_t best_id(const Row& row) {
  const float top = top_of(row);
  if (!(top > -kInf)) return -1;
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima[b] < top) continue;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i)
      if (row.x[i] == top) return static_cast<int32_t>(i);
  }
  return -1;
}

// The same over raw logits that need no work: +inf counts as the largest float32, NaN and -inf do not exist.
int32_t greedy(const float* x, int64_t n) {
  constexpr int L = V::kLanes;
  V::F top = V::broadcast(-kInf);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const V::F v = V::load(x + i);
    top = V::select(V::gt(v, top), v, top);
  }
  float lanes[L];
  V::store(lanes, top);
  float best = -kInf;
  for (float lane : lanes) best = lane > best ? lane : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  if (!(best > -kInf)) return -1;
  const float least = best < kLargest ? best : kLargest;
  for (i = 0; i < n; ++i)
    if (x[i] >= least) return static_cast<int32_t>(i);
  return -1;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
