// A KV page on GPUs.
//
//   page = [layer in group][kv head]{ K [token][dim], V [run][dim][16], (int8, fp8) K scales f32 [token], V scales f32 [token] }
//
// over the block's tokens, runs of 16 of them: keys and values both lie along what a dot product runs over, which is what matrix
// instructions want of their second operand, and what they take at a time are whole lines of memory, whatever the block's size. Sizes are those of CPUs (contract/attention.h); only the order inside a head's share differs.
#pragma once

#include "contract/attention.h"
#include "gpu/rows.inl.h"
#include "vec/fp8.h"

namespace octavo::gpu {

struct KVF32 {
  using T = float;
  static constexpr int32_t kType = kKVF32;
  static constexpr bool kRounds = false, kHasScales = false;
  static OCTAVO_GPU_FN float widen(T x) { return x; }
  static OCTAVO_GPU_FN T narrow(float x) { return V::abs(x) < 0x1p-126f ? V::copysign(0.0f, x) : x; }
};
struct KVBF16 {
  using T = uint16_t;
  static constexpr int32_t kType = kKVBF16;
  static constexpr bool kRounds = true, kHasScales = false;
  static OCTAVO_GPU_FN float widen(T h) { return vec::float_of_bf16(h); }
  static OCTAVO_GPU_FN T narrow(float x) { return vec::bf16_of(x); }
};
struct KVF16 {
  using T = uint16_t;
  static constexpr int32_t kType = kKVF16;
  static constexpr bool kRounds = false, kHasScales = false;
  static OCTAVO_GPU_FN float widen(T h) { return vec::float_of_f16(h); }
  static OCTAVO_GPU_FN T narrow(float x) { return vec::f16_of(x); }
};
struct KVI8 {
  using T = int8_t;
  static constexpr int32_t kType = kKVI8;
  static constexpr bool kRounds = true, kHasScales = true;
  static constexpr float kLargest = 127.0f;
  static OCTAVO_GPU_FN float widen(T x) { return static_cast<float>(x); }
  static OCTAVO_GPU_FN T code_of(float x) { return static_cast<int8_t>(static_cast<int32_t>(V::round_even(x))); }
};
struct KVF8 {
  using T = uint8_t;
  static constexpr int32_t kType = kKVF8;
  static constexpr bool kRounds = true, kHasScales = true;
  static constexpr float kLargest = 448.0f;
  static OCTAVO_GPU_FN float widen(T x) { return vec::E4M3FN::decode(x); }
  static OCTAVO_GPU_FN T code_of(float x) { return vec::e4m3_of(x); }
};

constexpr int kTokenRun = 16;  // tokens of which values lie together; a block holds whole runs

// One kv head of one sequence, by absolute position.
template <class KV>
struct HeadPages {
  using T = typename KV::T;
  const int32_t* table;
  uint8_t* base;
  int64_t page_bytes, block_tokens, head_dim;

  template <class Args>
  OCTAVO_GPU_FN HeadPages(const Args& a, const Step& step, int64_t seq, int64_t kv_head)
      : table(in_device(step.groups[a.group].block_table) + seq * step.groups[a.group].table_stride),
        base(in_device(step.pool) + a.layer_offset + kv_head * kv_head_bytes(KV::kType, a.block_tokens, a.head_dim)),
        page_bytes(a.page_bytes), block_tokens(a.block_tokens), head_dim(a.head_dim) {}

  OCTAVO_GPU_FN uint8_t* page(int64_t position) const { return base + table[position / block_tokens] * page_bytes; }
  OCTAVO_GPU_FN T* key(int64_t position) const {
    return reinterpret_cast<T*>(page(position)) + position % block_tokens * head_dim;
  }
  // Of dimension 0; the next dimension is kTokenRun further.
  OCTAVO_GPU_FN T* value(int64_t position) const {
    const int64_t slot = position % block_tokens;
    return reinterpret_cast<T*>(page(position)) + (block_tokens + slot / kTokenRun * kTokenRun) * head_dim + slot % kTokenRun;
  }
  OCTAVO_GPU_FN float* key_scale(int64_t position) const {
    return reinterpret_cast<float*>(page(position) + 2 * block_tokens * head_dim) + position % block_tokens;
  }
  OCTAVO_GPU_FN float* value_scale(int64_t position) const { return key_scale(position) + block_tokens; }
};

OCTAVO_GPU_FN int64_t position_of(const Step& step, int64_t token) {
  const int64_t seq = step.token_seq[token];
  return step.kv_len[seq] - (step.query_start[seq + 1] - token);
}

}  // namespace octavo::gpu
