// sample: one token per row of logits. Twin of platforms/reference/sample.py; the order of work is in docs/numerics.md.
//
// Rows that the threads can share out evenly are taken whole, one thread a row, so that a row stays in its core's caches. The
// rest (a single row, say) is cut into parts: the kernel then runs three times, once per stage, with a barrier in between.
#include "sample/row.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void sample(const void* raw, const Step&, const Lane& lane) {
  const auto& a = *static_cast<const SampleArgs*>(raw);
  const int64_t split = a.num_rows % lane.num_threads, whole = a.num_rows - split;
  const int64_t segments = (a.vocab + kVocabSegment - 1) / kVocabSegment;
  const int64_t wanted = split ? (lane.num_threads + split - 1) / split : 1;
  const int64_t parts = smaller(smaller(wanted, segments), kMaxParts);
  const int64_t first = a.stage == kSampleLook ? 0 : whole, per_row = a.stage == kSampleFinish ? 1 : parts;
  float* buffer = static_cast<float*>(lane.scratch);
  for (int64_t begin, end; lane.claim(whole - first + split * per_row, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) {
      if (first + unit < whole) {
        Row row(a, unit, lane.thread, 1, buffer);
        row.look(0);
        row.weigh(0);
        row.finish();
        continue;
      }
      const int64_t at = first + unit - whole, index = at / per_row, part = at % per_row;
      const int64_t slot = whole ? lane.num_threads + index : index;
      Row row(a, whole + index, slot, parts, buffer);
      if (a.stage == kSampleLook)
        row.look(part);
      else if (a.stage == kSampleWeigh)
        row.weigh(part);
      else
        row.finish();
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
