// Step 6 of sampling: the log-probability and the rank of the drawn token, and the best tokens with theirs.
#pragma once

#include "gpu/sample_select.inl.h"

namespace octavo::gpu {

constexpr int kVocabSegment = 4096;

// What a row without log-probabilities, or without a token, leaves.
OCTAVO_GPU_FN void report_nothing(const SampleArgs& a, int64_t r) {
  if (thread() == 0) {
    a.logprobs[r] = __builtin_nanf("");
    a.ranks[r] = 0;
  }
  for (int64_t j = r * a.max_logprobs + thread(); j < (r + 1) * a.max_logprobs; j += kSampleThreads) {
    a.best_ids[j] = -1;
    a.best_logprobs[j] = __builtin_nanf("");
  }
}

// The place of a token in descending order, from 1, and the log of the sum of exp(y - top): sixteen threads to a segment,
// segments added in order.
struct Standing {
  float log_sum;
  int32_t rank;
};
OCTAVO_GPU_FN Standing standing_of(const SampleRow& row, const SampleRoom& room, float top, const SampleCut& own) {
  constexpr int kSegments = kSampleThreads / kGroup;  // at a time
  auto* sums = reinterpret_cast<float*>(room.counts);
  float total = 0.0f;
  uint64_t before = 0;
  for (int64_t first = 0; first < row.vocab; first += kSegments * kVocabSegment) {
    const int64_t start = first + group() * kVocabSegment;
    const int64_t end = start + kVocabSegment < row.vocab ? start + kVocabSegment : row.vocab;
    float sum = 0.0f;
    for (int64_t i = start + group_lane(); i < end; i += kGroup) {
      const float y = row.value(row.logits[i], i);
      sum = sum + vec::exp_below<V>(y - top);
      before += y > -kInf && own.keeps(descending_key(y), static_cast<uint32_t>(i));
    }
    sum = fold16(sum);
    if (group_lane() == 0) sums[group()] = sum;
    sync();
    for (int s = 0; s < kSegments && first + s * kVocabSegment < row.vocab; ++s) total = total + sums[s];
    sync();
  }
  return {vec::log<V>(total), static_cast<int32_t>(block_sum(before, room))};
}

// The best tokens of the row, listed in any order in `list` [2 * most], then put where the number of better ones says.
OCTAVO_GPU_FN void report_best(const SampleArgs& a, int64_t r, const SampleRow& row, const SampleRoom& room, float top,
                               float log_sum, uint32_t* list) {
  const int64_t most = a.num_logprobs[r] < a.max_logprobs ? a.num_logprobs[r] : a.max_logprobs;
  if (most <= 0) return;
  const SampleCut cut =
      select(row, room, {false, true, top, 0}, [&](uint64_t) { return static_cast<uint64_t>(most); });
  if (thread() == 0) room.words[2] = 0;
  sync();
  each_token(row, [&](float y, uint32_t id) {
    if (!cut.keeps(descending_key(y), id)) return;
    const uint32_t i = add_shared(room.words + 2, uint32_t{1});
    list[2 * i] = static_cast<uint32_t>(word_of_float(y));
    list[2 * i + 1] = id;
  });
  sync();
  const auto count = static_cast<int>(room.words[2]);
  for (int e = thread(); e < count; e += kSampleThreads) {
    const float y = float_of_word(static_cast<int32_t>(list[2 * e]));
    const SampleCut own{descending_key(y), list[2 * e + 1]};
    int place = -1;
    for (int i = 0; i < count; ++i)
      place += own.keeps(descending_key(float_of_word(static_cast<int32_t>(list[2 * i]))), list[2 * i + 1]);
    a.best_ids[r * a.max_logprobs + place] = static_cast<int32_t>(own.id);
    a.best_logprobs[r * a.max_logprobs + place] = (y - top) - log_sum;
  }
  sync();
}

OCTAVO_GPU_FN void report(const SampleArgs& a, int64_t r, const SampleRow& row, const SampleRoom& room, int32_t id,
                          uint32_t* list) {
  const float top = best_of(row, room).value, y = row.value(row.logits[id], id);
  const Standing standing = standing_of(row, room, top, {descending_key(y), static_cast<uint32_t>(id)});
  if (thread() == 0) {
    a.logprobs[r] = (y - top) - standing.log_sum;
    a.ranks[r] = standing.rank;
  }
  report_best(a, r, row, room, top, standing.log_sum, list);
}

}  // namespace octavo::gpu
