// A row's values as the steps of docs/numerics.md, "Sampling", leave them: cleaned, edited by lists, tempered, filtered.
//
// Nothing as long as the vocabulary is written: masks, the temperature and the filters are applied to each logit as it is read.
// The lists (bans, biases, penalties) edit the logits where they lie, and afterwards put back what they found.
#pragma once

#include "contract/sample.h"
#include "gpu/sample_block.inl.h"

namespace octavo::gpu {

// Order of floats as unsigned integers, greatest first; -0 counts as +0.
OCTAVO_GPU_FN uint32_t descending_key(float x) {
  const auto u = static_cast<uint32_t>(word_of_float(x + 0.0f));
  return (u & 0x80000000u) ? u : u ^ 0x7FFFFFFFu;
}

OCTAVO_GPU_FN float bounded(float v) { return v > kLargest ? kLargest : v < -kLargest ? -kLargest : v; }

// Entries up to this one, by key and then by id, stay.
struct SampleCut {
  uint32_t key = ~0u, id = ~0u;

  OCTAVO_GPU_FN bool keeps(uint32_t k, uint32_t i) const { return k < key || (k == key && i <= id); }
};

// floor(exp(y - top) * 2^40) in halves of 20 bits, each of which a float32 holds exactly.
struct Mass {
  uint32_t high, low;

  OCTAVO_GPU_FN uint64_t whole() const { return (static_cast<uint64_t>(high) << 20) + low; }
};
OCTAVO_GPU_FN Mass mass_of(float y, float top) {
  const float scaled = vec::exp_below<V>(y - top) * 0x1p20f;
  const auto high = static_cast<uint32_t>(scaled);
  return {high, static_cast<uint32_t>((scaled - static_cast<float>(high)) * 0x1p20f)};
}

// Surprise below the top's in 2^-20 units, at most 64.
OCTAVO_GPU_FN uint32_t surprise_of(float y, float top) {
  const float below = top - y;
  return static_cast<uint32_t>((below < 64.0f ? below : 64.0f) * 0x1p20f);
}

// From the mean surprise.
OCTAVO_GPU_FN uint32_t distance_of(float y, float top, uint32_t mean) {
  const uint32_t u = surprise_of(y, top);
  return u > mean ? u - mean : mean - u;
}

// What the filters so far leave: each is a condition on a token's value and id.
struct Kept {
  SampleCut best;  // top-k and top-p: the tighter of the two
  bool is_typical = false;
  float typical_top = 0.0f;
  uint32_t mean = 0;
  SampleCut typical;
  float least = 0.0f, least_top = 0.0f;  // min-p

  OCTAVO_GPU_FN void tighten(const SampleCut& cut) {
    if (best.keeps(cut.key, cut.id)) best = cut;
  }
  OCTAVO_GPU_FN bool keeps(float y, uint32_t id) const {
    if (!best.keeps(descending_key(y), id)) return false;
    if (is_typical && !typical.keeps(distance_of(y, typical_top, mean), id)) return false;
    return !(least > 0.0f) || vec::exp_below<V>(y - least_top) >= least;
  }
};

struct alignas(16) FourLogits {
  float x[4];
};

// Where values come from, and which part of a row a block looks at: rounds of kSampleRound tokens in turn.
constexpr int64_t kSampleRound = 4 * kSampleThreads;
struct SampleRow {
  const float* logits;
  int64_t vocab;
  const uint32_t* mask;  // null: all tokens
  float temperature;
  Kept kept;
  int part = 0, parts = 1;

  // Token i < vocab; -inf where it does not exist or may not be drawn, else finite.
  OCTAVO_GPU_FN float value(float x, int64_t i) const {
    const bool exists = x > -kInf && (!mask || (mask[i >> 5] >> (i & 31) & 1u));
    if (!exists) return -kInf;
    float y = (x < kLargest ? x : kLargest) + 0.0f;
    if (temperature != 1.0f) y = bounded(y / temperature);
    return kept.keeps(y, static_cast<uint32_t>(i)) ? y : -kInf;
  }
  OCTAVO_GPU_FN FourLogits four(int64_t i) const {
    if (i + 4 <= vocab && reinterpret_cast<uintptr_t>(logits) % 16 == 0) return *reinterpret_cast<const FourLogits*>(logits + i);
    FourLogits v;
    for (int j = 0; j < 4; ++j) v.x[j] = i + j < vocab ? logits[i + j] : -kInf;
    return v;
  }
};

// Calls work(values of tokens i .. i + 3, i), i = 4 q, for this thread's share of some of the block's rounds: [begin, end).
constexpr int64_t kAllRounds = INT64_MAX;
template <class F>
OCTAVO_GPU_FN void each_four(const SampleRow& row, int64_t begin, int64_t end, F&& work) {
  const int64_t step = kSampleRound * row.parts, first = kSampleRound * row.part + 4 * thread();
  const int64_t stop = end < (row.vocab - 1) / step + 1 ? first + end * step : row.vocab;
  int64_t i = first + begin * step;
  FourLogits next = row.four(i);
  for (; i < row.vocab && i < stop; i += step) {
    FourLogits y = next;
    if (i + step < stop) next = row.four(i + step);  // on its way while this is worked on
    for (int j = 0; j < 4; ++j) y.x[j] = row.value(y.x[j], i + j);
    work(y.x, i);
  }
}

// Calls work(value, id) for this thread's share of a row's tokens.
template <class F>
OCTAVO_GPU_FN void each_token(const SampleRow& row, F&& work) {
  each_four(row, 0, kAllRounds, [&](const float(&y)[4], int64_t i) {
    for (int j = 0; j < 4; ++j)
      if (y[j] > -kInf) work(y[j], static_cast<uint32_t>(i + j));
  });
}

OCTAVO_GPU_FN BestToken best_of(const SampleRow& row, const SampleRoom& room) {
  BestToken best;
  each_token(row, [&](float y, uint32_t id) { best.offer(y, static_cast<int32_t>(id)); });
  return block_best(best, room);
}

// The lists of a row, which edit logits [vocab]; `saved` holds what they replaced, by place in the lists.
struct SampleEdits {
  const SampleArgs& a;
  int64_t r;
  float* logits;
  float* saved;

  OCTAVO_GPU_FN static int64_t room(const SampleArgs& a) {
    return static_cast<int64_t>(a.banned_start[a.num_rows]) + a.bias_start[a.num_rows] + a.count_start[a.num_rows];
  }

  // Calls work(entry, logit, what it was) for the entries of a list. A list names no id twice.
  template <class F>
  OCTAVO_GPU_FN void each(const int32_t* start, const int32_t* ids, float* old, F&& work) const {
    for (int32_t j = start[r] + thread(); j < start[r + 1]; j += kSampleThreads)
      if (ids[j] >= 0 && ids[j] < a.vocab) work(j, logits + ids[j], old + j);
    sync();
  }
  OCTAVO_GPU_FN float* old_bans() const { return saved; }
  OCTAVO_GPU_FN float* old_biases() const { return saved + a.banned_start[a.num_rows]; }
  OCTAVO_GPU_FN float* old_counts() const { return old_biases() + a.bias_start[a.num_rows]; }

  // Changes a token that exists; afterwards it still does.
  template <class F>
  OCTAVO_GPU_FN static void change(float* logit, float* old, F&& changed) {
    const float x = *logit;
    *old = x;
    if (x > -kInf) *logit = bounded(changed((x < kLargest ? x : kLargest) + 0.0f));
  }

  OCTAVO_GPU_FN void apply() const {
    each(a.banned_start, a.banned_ids, old_bans(), [&](int32_t, float* logit, float* old) {
      *old = *logit;
      *logit = -kInf;
    });
    each(a.bias_start, a.bias_ids, old_biases(), [&](int32_t j, float* logit, float* old) {
      change(logit, old, [&](float x) { return x + a.bias_values[j]; });
    });
    const float repetition = a.repetition[r], presence = a.presence[r], frequency = a.frequency[r];
    each(a.count_start, a.count_ids, old_counts(), [&](int32_t j, float* logit, float* old) {
      change(logit, old, [&](float x) {
        if (repetition != 1.0f) x = x > 0.0f ? x / repetition : x * repetition;
        if (a.count_output[j] > 0) {
          if (presence != 0.0f) x = x - presence;
          if (frequency != 0.0f) x = x - frequency * static_cast<float>(a.count_output[j]);
        }
        return x;
      });
    });
  }

  // Backwards, so that a token of several lists gets its first value.
  OCTAVO_GPU_FN void undo() const {
    const auto put_back = [](int32_t, float* logit, const float* old) { *logit = *old; };
    each(a.count_start, a.count_ids, old_counts(), put_back);
    each(a.bias_start, a.bias_ids, old_biases(), put_back);
    each(a.banned_start, a.banned_ids, old_bans(), put_back);
  }
};

}  // namespace octavo::gpu
