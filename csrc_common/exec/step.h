// What one engine step hands to every kernel of a recorded program: the batch, as plain pointers.
//
// Twin of platforms/types.py Batch: T tokens of S sequences packed without padding, R logits rows. Positions and lengths are
// in tokens, page ids index the pool; page 0 is the null page. Nothing here is owned; arrays live for the whole run.
#pragma once
#include <cstdint>

#include "exec/fn.h"

namespace octavo {

constexpr int kMaxGroups = 8;

struct StepGroup {
  const int32_t* block_table;  // [S, table_stride] page ids
  int64_t table_stride;        // in entries
};

struct Step {
  int64_t num_tokens;          // T
  int64_t num_seqs;            // S
  int64_t num_logits;          // R
  const int32_t* token_ids;    // [T]
  const int32_t* positions;    // [T] (first row of [P, T])
  const int32_t* query_start;  // [S + 1]
  const int32_t* kv_len;       // [S], this step's tokens included
  const int32_t* token_seq;    // [T]
  const int32_t* token_types;  // [T] or null
  const int32_t* logits_rows;  // [R]
  uint8_t* pool;               // page 0 of the KV pool, or null
  StepGroup groups[kMaxGroups];
};

// Which count of the step an op's rows follow.
enum RowsKind : int32_t { kTokens = 0, kLogits = 1, kSequences = 2, kFixed = 3 };

struct Rows {
  int32_t kind;   // RowsKind
  int32_t fixed;  // rows when kind is kFixed
};

[[gnu::always_inline]] OCTAVO_FN int64_t num_rows(const Rows& rows, const Step& step) {
  switch (rows.kind) {
    case kTokens: return step.num_tokens;
    case kLogits: return step.num_logits;
    case kSequences: return step.num_seqs;
    default: return rows.fixed;
  }
}

}  // namespace octavo
