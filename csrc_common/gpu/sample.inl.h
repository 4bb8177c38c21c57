// sample: a token for each row of logits (docs/numerics.md, "Sampling"), with the bits of CPUs.
//
// Logits are read once where only a temperature is asked for; each of top-k, typical-p and top-p reads them twice more (typical-p
// four times), and any filter once for the top and once for the draw. A block finishes a row. Where rows are few, more blocks go
// first (kSampleLook) over parts of the rows without lists, block z over part z: they find the token of a row without filters, and
// the greatest value of one with filters.
//
// `work`: what lists replaced in the logits, which are as before when a row is done (4 bytes per entry of all lists), then 8
// bytes for each of num_rows * max_logprobs, then `work_bytes` per row: 8 for each part that was looked at, 0 where none was.
#pragma once

#include "gpu/sample_draw.inl.h"
#include "gpu/sample_report.inl.h"

namespace octavo::gpu {

// One row at work.
struct SampleTask {
  const SampleArgs& a;
  int64_t r;
  const SampleRoom& room;
  Filters filters;
  bool is_greedy, is_edited;
  SampleRow row;

  OCTAVO_GPU_FN SampleTask(const SampleArgs& args, int64_t at, const SampleRoom& shared)
      : a(args), r(at), room(shared), filters(args, at) {
    const float temperature = a.temperature[r] + 0.0f;
    is_greedy = !(temperature > 0.0f);
    is_edited = a.banned_start[r] != a.banned_start[r + 1] || a.bias_start[r] != a.bias_start[r + 1] ||
                a.count_start[r] != a.count_start[r + 1];
    const uint32_t* mask = a.mask_row[r] >= 0 ? a.masks + a.mask_row[r] * a.mask_words : nullptr;
    row = {a.logits + r * a.ld, a.vocab, mask, is_greedy ? 1.0f : temperature, {}};
  }

  OCTAVO_GPU_FN bool is_filtered() const { return !is_greedy && filters.are_any(); }
  OCTAVO_GPU_FN uint32_t* list() const {
    return static_cast<uint32_t*>(a.work) + SampleEdits::room(a) + 2 * r * a.max_logprobs;
  }
  // What each part found: value, id.
  OCTAVO_GPU_FN int32_t* looked() const {
    const int64_t lists = SampleEdits::room(a) + 2 * a.num_rows * a.max_logprobs;
    return static_cast<int32_t*>(a.work) + lists + r * (a.work_bytes / 4);
  }

  OCTAVO_GPU_FN BestToken gather() const {
    BestToken best;
    for (int64_t part = thread(); part < a.work_bytes / 8; part += kSampleThreads)
      best.offer(float_of_word(looked()[2 * part]), looked()[2 * part + 1]);
    return block_best(best, room);
  }
};

OCTAVO_GPU_FN void run(SampleTask task) {
  const SampleArgs& a = task.a;
  const int64_t r = task.r;
  SampleRow& row = task.row;
  const bool is_look = a.stage == kSampleLook, was_looked = !is_look && a.work_bytes > 0 && !task.is_edited;
  if (is_look && task.is_edited) return;
  if (is_look) {
    row.part = block_z();
    row.parts = num_blocks_z();
  }
  const SampleEdits edits{a, r, const_cast<float*>(row.logits), static_cast<float*>(a.work)};
  if (task.is_edited) edits.apply();
  const bool is_filtered = task.is_filtered();
  BestToken best;
  if (was_looked)
    best = task.gather();
  else if (task.is_greedy || is_filtered)
    best = best_of(row, task.room);
  if (!is_look && is_filtered) filter(task.filters, task.room, best.value, &row);
  if (!task.is_greedy && (is_look ? !is_filtered : is_filtered || !was_looked)) best = draw(a, r, row, task.room);
  if (is_look) {
    if (thread() == 0) {
      task.looked()[2 * row.part] = word_of_float(best.value);
      task.looked()[2 * row.part + 1] = best.id;
    }
    return;
  }
  if (thread() == 0) a.ids[r] = best.id;
  report_nothing(a, r);
  sync();
  if (a.raw_logprobs) {
    if (task.is_edited) edits.undo();
    row = {row.logits, a.vocab, nullptr, 1.0f, {}};
  }
  if (best.id >= 0 && a.num_logprobs[r] >= 0) report(a, r, row, task.room, best.id, task.list());
  if (!a.raw_logprobs && task.is_edited) edits.undo();
}

OCTAVO_GPU_FN void sample(const SampleArgs& a) {
  OCTAVO_SHARED(uint64_t, masses, kBuckets);
  OCTAVO_SHARED(uint32_t, counts, kBuckets);
  OCTAVO_SHARED(uint64_t, waves, kSampleThreads / 32);
  OCTAVO_SHARED(uint64_t, rest, 1);
  OCTAVO_SHARED(uint32_t, words, 4);
  const SampleRoom room{masses, counts, waves, rest, words};
  OCTAVO_EACH(row, a.num_rows) run({a, row, room});
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(sample, simt, Sample, 512, 1, 0) { octavo::gpu::sample(a); }
