// sample: a token for each row of logits (docs/numerics.md, "Sampling"), with the bits of CPUs.
//
// Logits are read once where only a temperature is asked for; each of top-k, typical-p and top-p reads them twice more (typical-p
// four times), and any filter once for the top. A block finishes a row. Where rows are few, more blocks go first (kSampleLook) over
// parts of the rows without lists, which is all there is to do for those without filters: block z takes part z.
//
// `work`: what lists replaced in the logits, which are as before when a row is done (4 bytes per entry of all lists), then 8 bytes
// for each of num_rows * max_logprobs, then `work_bytes` per row: 8 for each part that was looked at, 0 where none was.
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

  // The token of a row without filters; of one with filters the greatest, which they begin with.
  OCTAVO_GPU_FN BestToken look() const { return is_greedy || is_filtered() ? best_of(row, room) : draw(a, r, row, room); }

  OCTAVO_GPU_FN BestToken gather() const {
    BestToken best;
    for (int64_t part = thread(); part < a.work_bytes / 8; part += kSampleThreads)
      best.offer(float_of_word(looked()[2 * part]), looked()[2 * part + 1]);
    return block_best(best, room);
  }
};

OCTAVO_GPU_FN void look_in(SampleTask task) {
  if (task.is_edited) return;
  task.row.part = block_z();
  task.row.parts = num_blocks_z();
  const BestToken best = task.look();
  if (thread() == 0) {
    task.looked()[2 * task.row.part] = word_of_float(best.value);
    task.looked()[2 * task.row.part + 1] = best.id;
  }
}

OCTAVO_GPU_FN void finish(SampleTask task) {
  const SampleArgs& a = task.a;
  const int64_t r = task.r;
  SampleRow& row = task.row;
  const SampleEdits edits{a, r, const_cast<float*>(row.logits), static_cast<float*>(a.work)};
  if (task.is_edited) edits.apply();
  BestToken best = a.work_bytes > 0 && !task.is_edited ? task.gather() : task.look();
  if (task.is_filtered()) {
    filter(task.filters, task.room, best.value, &row);
    best = draw(a, r, row, task.room);
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
  OCTAVO_EACH(row, a.num_rows) {
    if (a.stage == kSampleLook)
      look_in({a, row, room});
    else
      finish({a, row, room});
  }
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(sample, simt, Sample, 512, 1, 0) { octavo::gpu::sample(a); }
