// Arguments of the attention ops, and the layout of a KV page on CPUs.
//
// A page holds block_tokens (a multiple of 32) tokens of every layer of a group, contiguous:
//   page = [layer in group][kv head]{ K tile, V tile, (int8, fp8) K scales f32 [block_tokens], V scales f32 [block_tokens] }
// per run of 32 tokens inside the block ("sub-block" j = (token / 32)), a tile is
//   K: [head_dim / 2][32 tokens][2]   pairs along head_dim, tokens as lanes (a B operand of Q.K^T)
//   V: [16 token pairs][head_dim][2]  pairs along tokens (a B operand of P.V)
// elements in the KV dtype (f32 and f16 too). All K tiles of a head come first, then all V tiles, then the scales (slot order).
// head_dim is even. Slots that no token fills may hold anything. Strides below are in bytes, fixed when recording.
#pragma once
#include "exec/kernel.h"

namespace octavo {

enum KVType : int32_t { kKVF32 = 0, kKVBF16 = 1, kKVF16 = 2, kKVI8 = 3, kKVF8 = 4 };  // kKVF8: E4M3

OCTAVO_FN bool kv_has_scales(int32_t type) { return type == kKVI8 || type == kKVF8; }
OCTAVO_FN int64_t kv_element_bytes(int32_t type) { return type == kKVF32 ? 4 : kv_has_scales(type) ? 1 : 2; }

// Bytes of one kv head's share of one layer: K and V of block_tokens tokens, then the scales.
OCTAVO_FN int64_t kv_head_bytes(int32_t type, int64_t block_tokens, int64_t head_dim) {
  return 2 * block_tokens * head_dim * kv_element_bytes(type) + (kv_has_scales(type) ? 2 * block_tokens * 4 : 0);
}

struct KVAppendArgs {
  const float* k;
  int64_t ldk;
  const float* v;
  int64_t ldv;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t block_tokens;
  int64_t page_bytes;
  int64_t layer_offset;  // bytes from the page's start to this layer
  int32_t group;
  int32_t kv_type;
};
inline constexpr Field kKVAppendFields[] = {
    OCTAVO_FIELD(KVAppendArgs, k, pointer),        OCTAVO_FIELD(KVAppendArgs, ldk, i64),
    OCTAVO_FIELD(KVAppendArgs, v, pointer),        OCTAVO_FIELD(KVAppendArgs, ldv, i64),
    OCTAVO_FIELD(KVAppendArgs, kv_heads, i64),     OCTAVO_FIELD(KVAppendArgs, head_dim, i64),
    OCTAVO_FIELD(KVAppendArgs, block_tokens, i64), OCTAVO_FIELD(KVAppendArgs, page_bytes, i64),
    OCTAVO_FIELD(KVAppendArgs, layer_offset, i64), OCTAVO_FIELD(KVAppendArgs, group, i32),
    OCTAVO_FIELD(KVAppendArgs, kv_type, i32),
};

// copy_blocks: whole pages, pairs in order (a page may be the target of one pair and the source of a later one).
struct CopyBlocksArgs {
  const int32_t* pairs;  // [0] = count, then (source page, target page) each
  int64_t page_bytes;
};
inline constexpr Field kCopyBlocksFields[] = {
    OCTAVO_FIELD(CopyBlocksArgs, pairs, pointer),
    OCTAVO_FIELD(CopyBlocksArgs, page_bytes, i64),
};

// paged_attention_<kv dtype>: y [T, heads * head_dim]; the arithmetic is in platforms/ops.py. `partials` is memory of the op
// alone in which a sequence's segments are kept when several threads share it (0 bytes: none is shared); `counters` one zero per (sequence, query head), and zero again when the op is done.
struct PagedAttentionArgs {
  const float* q;
  int64_t ldq;
  float* y;
  int64_t ldy;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t block_tokens;
  int64_t page_bytes;
  int64_t layer_offset;
  int64_t window;      // visible tokens, 0 = all
  const float* sinks;  // [heads] or null
  const float* alibi;  // [heads] slopes or null
  float* partials;
  int64_t partials_bytes;
  Counter* counters;
  float scale;
  float softcap;       // 0 = off
  int32_t group;
  int32_t kv_type;
};
inline constexpr Field kPagedAttentionFields[] = {
    OCTAVO_FIELD(PagedAttentionArgs, q, pointer),        OCTAVO_FIELD(PagedAttentionArgs, ldq, i64),
    OCTAVO_FIELD(PagedAttentionArgs, y, pointer),        OCTAVO_FIELD(PagedAttentionArgs, ldy, i64),
    OCTAVO_FIELD(PagedAttentionArgs, heads, i64),        OCTAVO_FIELD(PagedAttentionArgs, kv_heads, i64),
    OCTAVO_FIELD(PagedAttentionArgs, head_dim, i64),     OCTAVO_FIELD(PagedAttentionArgs, block_tokens, i64),
    OCTAVO_FIELD(PagedAttentionArgs, page_bytes, i64),   OCTAVO_FIELD(PagedAttentionArgs, layer_offset, i64),
    OCTAVO_FIELD(PagedAttentionArgs, window, i64),       OCTAVO_FIELD(PagedAttentionArgs, sinks, pointer),
    OCTAVO_FIELD(PagedAttentionArgs, alibi, pointer),    OCTAVO_FIELD(PagedAttentionArgs, partials, pointer),
    OCTAVO_FIELD(PagedAttentionArgs, partials_bytes, i64), OCTAVO_FIELD(PagedAttentionArgs, counters, pointer),
    OCTAVO_FIELD(PagedAttentionArgs, scale, f32),        OCTAVO_FIELD(PagedAttentionArgs, softcap, f32),
    OCTAVO_FIELD(PagedAttentionArgs, group, i32),        OCTAVO_FIELD(PagedAttentionArgs, kv_type, i32),
};

// varlen_attention: inside each packed sequence, both ways or causal; float32 keys and values, those of its first kv_len tokens.
struct VarlenAttentionArgs {
  const float* q;
  int64_t ldq;
  const float* k;
  int64_t ldk;
  const float* v;
  int64_t ldv;
  float* y;
  int64_t ldy;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window;      // |i - j| <= window, 0 = all
  const float* alibi;  // [heads] or null: + slope * -|i - j|
  const float* bias;   // [heads][2 * reach + 1] or null: + bias[h][reach + j - i], beyond reach that of reach
  int64_t reach;
  float scale;
  int32_t causal;      // not 0: j <= i
#if !defined(OCTAVO_GPU)
  uint16_t* narrow;    // null, or bfloat16 [rows, ldnarrow], written instead of y: what prepare_bf16 makes of it; heads * head_dim is
  int64_t ldnarrow;    // a multiple of 32
#endif
};
inline constexpr Field kVarlenAttentionFields[] = {
    OCTAVO_FIELD(VarlenAttentionArgs, q, pointer),     OCTAVO_FIELD(VarlenAttentionArgs, ldq, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, k, pointer),     OCTAVO_FIELD(VarlenAttentionArgs, ldk, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, v, pointer),     OCTAVO_FIELD(VarlenAttentionArgs, ldv, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, y, pointer),     OCTAVO_FIELD(VarlenAttentionArgs, ldy, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, heads, i64),     OCTAVO_FIELD(VarlenAttentionArgs, kv_heads, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, head_dim, i64),  OCTAVO_FIELD(VarlenAttentionArgs, window, i64),
    OCTAVO_FIELD(VarlenAttentionArgs, alibi, pointer), OCTAVO_FIELD(VarlenAttentionArgs, bias, pointer),
    OCTAVO_FIELD(VarlenAttentionArgs, reach, i64),     OCTAVO_FIELD(VarlenAttentionArgs, scale, f32),
    OCTAVO_FIELD(VarlenAttentionArgs, causal, i32),
#if !defined(OCTAVO_GPU)
    OCTAVO_OPTIONAL(VarlenAttentionArgs, narrow, pointer), OCTAVO_OPTIONAL(VarlenAttentionArgs, ldnarrow, i64),
#endif
};

// relative_attention: inside each packed sequence, all keys; scores of contents and of distances. A table is
// [heads][buckets][head_dim]; key j of query i meets its row by_distance[reach + j - i], beyond reach that of reach. Rows ascend with
// the distance: the next one has the same row or the row behind it.
struct RelativeAttentionArgs {
  const float* q;
  int64_t ldq;
  const float* k;
  int64_t ldk;
  const float* v;
  int64_t ldv;
  float* y;
  int64_t ldy;
  int64_t heads;
  int64_t head_dim;
  const float* rel_k;  // or null: + q_i . row
  const float* rel_q;  // or null: + k_j . row
  const int32_t* by_distance;  // [2 * reach + 1]
  int64_t buckets;
  int64_t reach;
  float scale;
};
inline constexpr Field kRelativeAttentionFields[] = {
    OCTAVO_FIELD(RelativeAttentionArgs, q, pointer),       OCTAVO_FIELD(RelativeAttentionArgs, ldq, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, k, pointer),       OCTAVO_FIELD(RelativeAttentionArgs, ldk, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, v, pointer),       OCTAVO_FIELD(RelativeAttentionArgs, ldv, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, y, pointer),       OCTAVO_FIELD(RelativeAttentionArgs, ldy, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, heads, i64),       OCTAVO_FIELD(RelativeAttentionArgs, head_dim, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, rel_k, pointer),   OCTAVO_FIELD(RelativeAttentionArgs, rel_q, pointer),
    OCTAVO_FIELD(RelativeAttentionArgs, by_distance, pointer), OCTAVO_FIELD(RelativeAttentionArgs, buckets, i64),
    OCTAVO_FIELD(RelativeAttentionArgs, reach, i64),       OCTAVO_FIELD(RelativeAttentionArgs, scale, f32),
};

}  // namespace octavo
