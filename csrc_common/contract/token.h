// Arguments of the token ops (docs: platforms/ops.py). Rows are float32, row strides (`ld*`) in elements.
#pragma once
#include "exec/kernel.h"

namespace octavo {

// embedding_<format>: y[row] = decode(table[id[row]]) * scale. `table` holds rows as the checkpoint stores them.
struct EmbeddingArgs {
  const void* table;
  int64_t row_bytes;
  int64_t num_rows;  // of the table; ids are checked before a step is built
  int64_t width;
  float* y;
  int64_t ldy;
  float scale;
  int32_t source;  // 0 token_ids, 1 positions, 2 token_types
};
inline constexpr Field kEmbeddingFields[] = {
    OCTAVO_FIELD(EmbeddingArgs, table, pointer), OCTAVO_FIELD(EmbeddingArgs, row_bytes, i64),
    OCTAVO_FIELD(EmbeddingArgs, num_rows, i64),  OCTAVO_FIELD(EmbeddingArgs, width, i64),
    OCTAVO_FIELD(EmbeddingArgs, y, pointer),     OCTAVO_FIELD(EmbeddingArgs, ldy, i64),
    OCTAVO_FIELD(EmbeddingArgs, scale, f32),     OCTAVO_FIELD(EmbeddingArgs, source, i32),
};

// add: y = a * scale_a + b * scale_b.
struct AddArgs {
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* y;
  int64_t ldy;
  int64_t width;
  float scale_a;
  float scale_b;
  Rows rows;
};
inline constexpr Field kAddFields[] = {
    OCTAVO_FIELD(AddArgs, a, pointer), OCTAVO_FIELD(AddArgs, lda, i64),     OCTAVO_FIELD(AddArgs, b, pointer),
    OCTAVO_FIELD(AddArgs, ldb, i64),   OCTAVO_FIELD(AddArgs, y, pointer),   OCTAVO_FIELD(AddArgs, ldy, i64),
    OCTAVO_FIELD(AddArgs, width, i64), OCTAVO_FIELD(AddArgs, scale_a, f32), OCTAVO_FIELD(AddArgs, scale_b, f32),
    OCTAVO_FIELD(AddArgs, rows, rows),
};

// rms_norm and layer_norm: each row holds `heads` vectors of `width` values, normed apart, sharing weight and bias.
struct NormArgs {
  const float* x;
  int64_t ldx;
  const float* weight;  // [width] or null
  const float* bias;    // [width] or null (layer_norm only)
  float* y;
  int64_t ldy;
  int64_t width;  // of one vector
  int64_t heads;
  float eps;
  Rows rows;
#if !defined(OCTAVO_GPU)
  uint16_t* narrow;     // null, or bfloat16 [rows, ldnarrow], written beside y: what prepare_bf16 makes of it; width * heads is a
  int64_t ldnarrow;     // multiple of 32, and y may be null
#endif
};
inline constexpr Field kNormFields[] = {
    OCTAVO_FIELD(NormArgs, x, pointer),    OCTAVO_FIELD(NormArgs, ldx, i64), OCTAVO_FIELD(NormArgs, weight, pointer),
    OCTAVO_FIELD(NormArgs, bias, pointer), OCTAVO_FIELD(NormArgs, y, pointer), OCTAVO_FIELD(NormArgs, ldy, i64),
    OCTAVO_FIELD(NormArgs, width, i64),    OCTAVO_FIELD(NormArgs, heads, i64), OCTAVO_FIELD(NormArgs, eps, f32),
    OCTAVO_FIELD(NormArgs, rows, rows),
#if !defined(OCTAVO_GPU)
    OCTAVO_OPTIONAL(NormArgs, narrow, pointer), OCTAVO_OPTIONAL(NormArgs, ldnarrow, i64),
#endif
};

// rope: rotates the first rotary_dim values of each head; the rest is copied. x and y may be the same.
struct RopeArgs {
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  const float* table;  // [max_positions][2][rotary_dim / 2]: cos row, then sin row
  int64_t max_positions;
  int64_t heads;
  int64_t head_dim;
  int64_t rotary_dim;
  int32_t interleaved;  // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
};
inline constexpr Field kRopeFields[] = {
    OCTAVO_FIELD(RopeArgs, x, pointer),        OCTAVO_FIELD(RopeArgs, ldx, i64),
    OCTAVO_FIELD(RopeArgs, y, pointer),        OCTAVO_FIELD(RopeArgs, ldy, i64),
    OCTAVO_FIELD(RopeArgs, table, pointer),    OCTAVO_FIELD(RopeArgs, max_positions, i64),
    OCTAVO_FIELD(RopeArgs, heads, i64),        OCTAVO_FIELD(RopeArgs, head_dim, i64),
    OCTAVO_FIELD(RopeArgs, rotary_dim, i64),   OCTAVO_FIELD(RopeArgs, interleaved, i32),
};

// gather_rows: y[r] = x[logits_rows[r]] for the step's R rows.
struct GatherArgs {
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  int64_t width;
};
inline constexpr Field kGatherFields[] = {
    OCTAVO_FIELD(GatherArgs, x, pointer), OCTAVO_FIELD(GatherArgs, ldx, i64),   OCTAVO_FIELD(GatherArgs, y, pointer),
    OCTAVO_FIELD(GatherArgs, ldy, i64),   OCTAVO_FIELD(GatherArgs, width, i64),
};

// softcap: y = cap * tanh(x / cap).
struct SoftcapArgs {
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  int64_t width;
  float cap;
  Rows rows;
};
inline constexpr Field kSoftcapFields[] = {
    OCTAVO_FIELD(SoftcapArgs, x, pointer), OCTAVO_FIELD(SoftcapArgs, ldx, i64),   OCTAVO_FIELD(SoftcapArgs, y, pointer),
    OCTAVO_FIELD(SoftcapArgs, ldy, i64),   OCTAVO_FIELD(SoftcapArgs, width, i64), OCTAVO_FIELD(SoftcapArgs, cap, f32),
    OCTAVO_FIELD(SoftcapArgs, rows, rows),
};

// pool: one vector per sequence.
struct PoolArgs {
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  int64_t width;
  int32_t mode;  // 0 cls, 1 last, 2 mean
  int32_t normalize;
};
inline constexpr Field kPoolFields[] = {
    OCTAVO_FIELD(PoolArgs, x, pointer), OCTAVO_FIELD(PoolArgs, ldx, i64),   OCTAVO_FIELD(PoolArgs, y, pointer),
    OCTAVO_FIELD(PoolArgs, ldy, i64),   OCTAVO_FIELD(PoolArgs, width, i64), OCTAVO_FIELD(PoolArgs, mode, i32),
    OCTAVO_FIELD(PoolArgs, normalize, i32),
};

}  // namespace octavo
