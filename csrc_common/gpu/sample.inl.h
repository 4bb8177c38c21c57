// sample: a token for each row of logits (docs/numerics.md, "Sampling"). A block per row; the bits of CPUs.
//
// Logits are read once where only a temperature is asked for; each of top-k, typical-p and top-p reads them twice more (typical-p
// four times), and any filter once for the top. `work` holds what lists replaced in the logits, which are as before when a row is
// done (4 bytes per entry of all lists), then 8 bytes for each of num_rows * max_logprobs; `work_bytes` and `stage` mean nothing.
#pragma once

#include "gpu/sample_report.inl.h"
#include "sample/noise.inl.h"

namespace octavo::gpu {

// Step 5, or the best of all where there is no noise.
OCTAVO_GPU_FN int32_t draw(const SampleArgs& a, int64_t r, const SampleRow& row, const SampleRoom& room, bool is_greedy) {
  using namespace OCTAVO_ISA_NS;
  BestToken best;
  const NoiseKey key{a.seed[r], a.choice[r], a.position[r]};
  each_four(row, [&](const float(&y)[4], int64_t i) {
    if (is_greedy) {
      for (int j = 0; j < 4; ++j)
        if (y[j] > -kInf) best.offer(y[j], static_cast<int32_t>(i + j));
      return;
    }
    const float most = V::max(V::max(y[0], y[1]), V::max(y[2], y[3]));
    if (!(most > -kInf) || (best.id >= 0 && most + kMaxGumbel < best.value)) return;
    int32_t words[4];
    noise_draws<V>(key, static_cast<int32_t>(i / 4), words);
    for (int j = 0; j < 4; ++j)
      if (y[j] > -kInf) best.offer(y[j] + gumbel(static_cast<uint32_t>(words[j])), static_cast<int32_t>(i + j));
  });
  return block_best(best, room).id;
}

OCTAVO_GPU_FN void sample_row(const SampleArgs& a, int64_t r, const SampleRoom& room) {
  const float* logits = a.logits + r * a.ld;
  auto* list = static_cast<uint32_t*>(a.work) + SampleEdits::room(a) + 2 * r * a.max_logprobs;
  const float temperature = a.temperature[r] + 0.0f;
  const bool is_greedy = !(temperature > 0.0f);
  const SampleEdits edits{a, r, const_cast<float*>(logits), static_cast<float*>(a.work)};
  edits.apply();
  const uint32_t* mask = a.mask_row[r] >= 0 ? a.masks + a.mask_row[r] * a.mask_words : nullptr;
  SampleRow row{logits, a.vocab, mask, is_greedy ? 1.0f : temperature, {}};
  if (!is_greedy) filter(a, r, room, &row);
  const int32_t id = draw(a, r, row, room, is_greedy);
  if (thread() == 0) a.ids[r] = id;
  report_nothing(a, r);
  sync();
  const bool is_reported = id >= 0 && a.num_logprobs[r] >= 0;
  if (a.raw_logprobs) {
    edits.undo();
    row = {logits, a.vocab, nullptr, 1.0f, {}};
  }
  if (is_reported) report(a, r, row, room, id, list);
  if (!a.raw_logprobs) edits.undo();
}

OCTAVO_GPU_FN void sample(const SampleArgs& a) {
  OCTAVO_SHARED(uint64_t, masses, kBuckets);
  OCTAVO_SHARED(uint32_t, counts, kBuckets);
  OCTAVO_SHARED(uint64_t, waves, kSampleThreads / 32);
  OCTAVO_SHARED(uint64_t, rest, 1);
  OCTAVO_SHARED(uint32_t, words, 4);
  const SampleRoom room{masses, counts, waves, rest, words};
  OCTAVO_EACH(row, a.num_rows) sample_row(a, row, room);
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(sample, simt, Sample, 512, 1, 0) { octavo::gpu::sample(a); }
