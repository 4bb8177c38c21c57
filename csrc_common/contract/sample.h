// Arguments of sampling: one row of logits per choice; parameters as in platforms/types.py SampleBatch, the order and the
// arithmetic in docs/numerics.md, "Sampling". Arrays are per row [rows] unless said; CSR lists are sorted by token id.
#pragma once
#include "exec/kernel.h"

namespace octavo {

struct SampleArgs {
  const float* logits;  // [rows, ld]
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
  const int32_t* count_start;
  const int32_t* count_ids;
  const int32_t* count_output;
  const int32_t* bias_start;
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* banned_start;
  const int32_t* banned_ids;
  const int32_t* mask_row;
  const uint32_t* masks;  // [.., mask_words]
  int64_t mask_words;
  int32_t raw_logprobs;
  int32_t max_logprobs;  // K
  int32_t* ids;          // out [rows]
  float* logprobs;       // out [rows]
  int32_t* ranks;        // out [rows]
  int32_t* best_ids;     // out [rows, K]
  float* best_logprobs;  // out [rows, K]
};

}  // namespace octavo
