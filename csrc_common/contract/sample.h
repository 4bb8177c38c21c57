// Arguments of sampling: one row of logits per choice; parameters as in platforms/types.py SampleBatch, the order and the
// arithmetic in docs/numerics.md, "Sampling". Arrays are per row [num_rows] unless said; CSR lists are sorted by token id.
#pragma once
#include "exec/kernel.h"

namespace octavo {

struct SampleArgs {
  const float* logits;  // [num_rows, ld]
  int64_t ld;
  int64_t vocab;
  int64_t num_rows;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const float* typical_p;
  const float* presence;
  const float* frequency;
  const float* repetition;
  const uint64_t* seed;
  const uint32_t* choice;
  const int64_t* position;
  const int32_t* num_logprobs;
  const int32_t* count_start;  // [num_rows + 1]
  const int32_t* count_ids;
  const int32_t* count_output;
  const int32_t* bias_start;  // [num_rows + 1]
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* banned_start;  // [num_rows + 1]
  const int32_t* banned_ids;
  const int32_t* mask_row;
  const uint32_t* masks;  // [.., mask_words]
  int64_t mask_words;
  int32_t raw_logprobs;
  int32_t max_logprobs;  // K
  int32_t* ids;          // out [num_rows]
  float* logprobs;       // out [num_rows], NaN where not asked
  int32_t* ranks;        // out [num_rows], 0 where not asked
  int32_t* best_ids;     // out [num_rows, K], padded with -1
  float* best_logprobs;  // out [num_rows, K], padded with NaN
  void* work;            // [slots][work_bytes], one per thread if rows >= threads, and one per row that is cut
  int64_t work_bytes;    // at least sample_work_bytes(vocab)
  int32_t stage;         // SampleStage
};

// Rows that do not share out evenly over the threads are cut into parts and need all three stages, a barrier between them; the
// others are done in the first.
enum SampleStage : int32_t { kSampleLook, kSampleWeigh, kSampleFinish };

// A slot: six arrays of sample_room(vocab) float32 or int32 (three of a list, two of another, sums), then parts.
constexpr int64_t kSamplePartBytes = 4096;
constexpr int64_t sample_room(int64_t vocab) { return (vocab + 63) / 64 * 64 + 64; }
constexpr int64_t sample_work_bytes(int64_t vocab) { return 6 * 4 * sample_room(vocab) + kSamplePartBytes; }

inline constexpr Field kSampleFields[] = {
    OCTAVO_FIELD(SampleArgs, logits, pointer),       OCTAVO_FIELD(SampleArgs, ld, i64),
    OCTAVO_FIELD(SampleArgs, vocab, i64),            OCTAVO_FIELD(SampleArgs, num_rows, i64),
    OCTAVO_FIELD(SampleArgs, temperature, pointer),  OCTAVO_FIELD(SampleArgs, top_k, pointer),
    OCTAVO_FIELD(SampleArgs, top_p, pointer),        OCTAVO_FIELD(SampleArgs, min_p, pointer),
    OCTAVO_FIELD(SampleArgs, typical_p, pointer),    OCTAVO_FIELD(SampleArgs, presence, pointer),
    OCTAVO_FIELD(SampleArgs, frequency, pointer),    OCTAVO_FIELD(SampleArgs, repetition, pointer),
    OCTAVO_FIELD(SampleArgs, seed, pointer),         OCTAVO_FIELD(SampleArgs, choice, pointer),
    OCTAVO_FIELD(SampleArgs, position, pointer),     OCTAVO_FIELD(SampleArgs, num_logprobs, pointer),
    OCTAVO_FIELD(SampleArgs, count_start, pointer),  OCTAVO_FIELD(SampleArgs, count_ids, pointer),
    OCTAVO_FIELD(SampleArgs, count_output, pointer), OCTAVO_FIELD(SampleArgs, bias_start, pointer),
    OCTAVO_FIELD(SampleArgs, bias_ids, pointer),     OCTAVO_FIELD(SampleArgs, bias_values, pointer),
    OCTAVO_FIELD(SampleArgs, banned_start, pointer), OCTAVO_FIELD(SampleArgs, banned_ids, pointer),
    OCTAVO_FIELD(SampleArgs, mask_row, pointer),     OCTAVO_FIELD(SampleArgs, masks, pointer),
    OCTAVO_FIELD(SampleArgs, mask_words, i64),       OCTAVO_FIELD(SampleArgs, raw_logprobs, i32),
    OCTAVO_FIELD(SampleArgs, max_logprobs, i32),     OCTAVO_FIELD(SampleArgs, ids, pointer),
    OCTAVO_FIELD(SampleArgs, logprobs, pointer),     OCTAVO_FIELD(SampleArgs, ranks, pointer),
    OCTAVO_FIELD(SampleArgs, best_ids, pointer),     OCTAVO_FIELD(SampleArgs, best_logprobs, pointer),
    OCTAVO_FIELD(SampleArgs, work, pointer),         OCTAVO_FIELD(SampleArgs, work_bytes, i64),
    OCTAVO_FIELD(SampleArgs, stage, i32),
};

}  // namespace octavo
