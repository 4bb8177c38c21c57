// Arguments of ops that GPUs run in one launch where a CPU runs several: each part has the bits of the op it stands for.
#pragma once
#include "exec/kernel.h"

namespace octavo {

// rms_norm_prepare_<form> and layer_norm_prepare_<form>: a norm of whole rows, then prepare_<form> of the result (contract/token.h,
// contract/linear.h).
struct NormPrepareArgs {
  const float* x;
  int64_t ldx;
  const float* weight;  // [width] or null
  const float* bias;    // the same; of layer_norm only
  float* y;             // the normed rows, or null where nobody else reads them
  int64_t ldy;
  int64_t width;
  void* q;
  int64_t ldq;
  float* scales;
  int32_t* sums;
  int64_t lds;
  float eps;
  Rows rows;
};
inline constexpr Field kNormPrepareFields[] = {
    OCTAVO_FIELD(NormPrepareArgs, x, pointer),      OCTAVO_FIELD(NormPrepareArgs, ldx, i64),
    OCTAVO_FIELD(NormPrepareArgs, weight, pointer), OCTAVO_FIELD(NormPrepareArgs, bias, pointer),
    OCTAVO_FIELD(NormPrepareArgs, y, pointer),      OCTAVO_FIELD(NormPrepareArgs, ldy, i64),
    OCTAVO_FIELD(NormPrepareArgs, width, i64),      OCTAVO_FIELD(NormPrepareArgs, q, pointer),
    OCTAVO_FIELD(NormPrepareArgs, ldq, i64),        OCTAVO_FIELD(NormPrepareArgs, scales, pointer),
    OCTAVO_FIELD(NormPrepareArgs, sums, pointer),   OCTAVO_FIELD(NormPrepareArgs, lds, i64),
    OCTAVO_FIELD(NormPrepareArgs, eps, f32),        OCTAVO_FIELD(NormPrepareArgs, rows, rows),
};

// gated: y = x * act(gate), the two halves of a product of gate and up as one weight.
struct GatedArgs {
  const float* gate;
  int64_t ldgate;
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  int64_t width;
  int32_t activation;  // ActivationKind
  Rows rows;
};
inline constexpr Field kGatedFields[] = {
    OCTAVO_FIELD(GatedArgs, gate, pointer), OCTAVO_FIELD(GatedArgs, ldgate, i64),     OCTAVO_FIELD(GatedArgs, x, pointer),
    OCTAVO_FIELD(GatedArgs, ldx, i64),      OCTAVO_FIELD(GatedArgs, y, pointer),      OCTAVO_FIELD(GatedArgs, ldy, i64),
    OCTAVO_FIELD(GatedArgs, width, i64),    OCTAVO_FIELD(GatedArgs, activation, i32), OCTAVO_FIELD(GatedArgs, rows, rows),
};

// gated_prepare_<form>: gated, then prepare_<form> of the result (contract/linear.h).
struct GatedPrepareArgs {
  const float* gate;
  int64_t ldgate;
  const float* x;
  int64_t ldx;
  int64_t k;
  void* q;
  int64_t ldq;
  float* scales;
  int32_t* sums;
  int64_t lds;
  int32_t activation;
  Rows rows;
};
inline constexpr Field kGatedPrepareFields[] = {
    OCTAVO_FIELD(GatedPrepareArgs, gate, pointer),   OCTAVO_FIELD(GatedPrepareArgs, ldgate, i64),
    OCTAVO_FIELD(GatedPrepareArgs, x, pointer),      OCTAVO_FIELD(GatedPrepareArgs, ldx, i64),
    OCTAVO_FIELD(GatedPrepareArgs, k, i64),          OCTAVO_FIELD(GatedPrepareArgs, q, pointer),
    OCTAVO_FIELD(GatedPrepareArgs, ldq, i64),        OCTAVO_FIELD(GatedPrepareArgs, scales, pointer),
    OCTAVO_FIELD(GatedPrepareArgs, sums, pointer),   OCTAVO_FIELD(GatedPrepareArgs, lds, i64),
    OCTAVO_FIELD(GatedPrepareArgs, activation, i32), OCTAVO_FIELD(GatedPrepareArgs, rows, rows),
};

// rms_norm_add: rms_norm of whole rows, then add of a and the result (contract/token.h).
struct NormAddArgs {
  const float* x;
  int64_t ldx;
  const float* weight;  // [width] or null
  float* normed;        // the normed rows, or null where nobody else reads them
  int64_t ldnormed;
  const float* a;
  int64_t lda;
  float* y;
  int64_t ldy;
  int64_t width;
  float eps;
  float scale_a;
  float scale_b;
  Rows rows;
};
inline constexpr Field kNormAddFields[] = {
    OCTAVO_FIELD(NormAddArgs, x, pointer),      OCTAVO_FIELD(NormAddArgs, ldx, i64),
    OCTAVO_FIELD(NormAddArgs, weight, pointer), OCTAVO_FIELD(NormAddArgs, normed, pointer),
    OCTAVO_FIELD(NormAddArgs, ldnormed, i64),   OCTAVO_FIELD(NormAddArgs, a, pointer),
    OCTAVO_FIELD(NormAddArgs, lda, i64),        OCTAVO_FIELD(NormAddArgs, y, pointer),
    OCTAVO_FIELD(NormAddArgs, ldy, i64),        OCTAVO_FIELD(NormAddArgs, width, i64),
    OCTAVO_FIELD(NormAddArgs, eps, f32),        OCTAVO_FIELD(NormAddArgs, scale_a, f32),
    OCTAVO_FIELD(NormAddArgs, scale_b, f32),    OCTAVO_FIELD(NormAddArgs, rows, rows),
};

// rope_append_<kv dtype>: what lies between the projections of q, k and v and attention: rms_norm of each head of q and k, if they
// have one, rope of both, then kv_append of k and v (contract/token.h, contract/attention.h).
struct RopeAppendArgs {
  const float* q;
  int64_t ldq;
  const float* k;
  int64_t ldk;
  const float* v;
  int64_t ldv;
  const float* q_weight;  // [head_dim] or null
  const float* k_weight;
  float* y;               // q, rotated
  int64_t ldy;
  float* key;             // k, rotated
  int64_t ldkey;
  const float* table;     // as rope's
  int64_t max_positions;
  int64_t rotary_dim;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t block_tokens;
  int64_t page_bytes;
  int64_t layer_offset;
  int32_t interleaved;
  int32_t has_q_norm;
  int32_t has_k_norm;
  float q_eps;
  float k_eps;
  int32_t group;
  int32_t kv_type;
};
inline constexpr Field kRopeAppendFields[] = {
    OCTAVO_FIELD(RopeAppendArgs, q, pointer),          OCTAVO_FIELD(RopeAppendArgs, ldq, i64),
    OCTAVO_FIELD(RopeAppendArgs, k, pointer),          OCTAVO_FIELD(RopeAppendArgs, ldk, i64),
    OCTAVO_FIELD(RopeAppendArgs, v, pointer),          OCTAVO_FIELD(RopeAppendArgs, ldv, i64),
    OCTAVO_FIELD(RopeAppendArgs, q_weight, pointer),   OCTAVO_FIELD(RopeAppendArgs, k_weight, pointer),
    OCTAVO_FIELD(RopeAppendArgs, y, pointer),          OCTAVO_FIELD(RopeAppendArgs, ldy, i64),
    OCTAVO_FIELD(RopeAppendArgs, key, pointer),        OCTAVO_FIELD(RopeAppendArgs, ldkey, i64),
    OCTAVO_FIELD(RopeAppendArgs, table, pointer),      OCTAVO_FIELD(RopeAppendArgs, max_positions, i64),
    OCTAVO_FIELD(RopeAppendArgs, rotary_dim, i64),     OCTAVO_FIELD(RopeAppendArgs, heads, i64),
    OCTAVO_FIELD(RopeAppendArgs, kv_heads, i64),       OCTAVO_FIELD(RopeAppendArgs, head_dim, i64),
    OCTAVO_FIELD(RopeAppendArgs, block_tokens, i64),   OCTAVO_FIELD(RopeAppendArgs, page_bytes, i64),
    OCTAVO_FIELD(RopeAppendArgs, layer_offset, i64),   OCTAVO_FIELD(RopeAppendArgs, interleaved, i32),
    OCTAVO_FIELD(RopeAppendArgs, has_q_norm, i32),     OCTAVO_FIELD(RopeAppendArgs, has_k_norm, i32),
    OCTAVO_FIELD(RopeAppendArgs, q_eps, f32),          OCTAVO_FIELD(RopeAppendArgs, k_eps, f32),
    OCTAVO_FIELD(RopeAppendArgs, group, i32),          OCTAVO_FIELD(RopeAppendArgs, kv_type, i32),
};

}  // namespace octavo
