// kv_append_{f32,bf16,f16,int8,fp8} and copy_blocks: what writes KV pages, with the bits of CPUs.
#pragma once

#include "gpu/pages.inl.h"

namespace octavo::gpu {

// Sixteen threads per (token, kv head).
template <class KV>
OCTAVO_GPU_FN void kv_append(const Step& step, const KVAppendArgs& a) {
  each_row(step.num_tokens * a.kv_heads, [&](int64_t unit, bool is_real) {
    const int64_t token = unit / a.kv_heads, head = unit % a.kv_heads, position = position_of(step, token);
    const HeadPages<KV> pages(a, step, step.token_seq[token], head);
    for (int which = 0; which < 2; ++which) {
      const float* x = which == 0 ? a.k + token * a.ldk + head * a.head_dim : a.v + token * a.ldv + head * a.head_dim;
      typename KV::T* to = which == 0 ? pages.key(position) : pages.value(position);
      const int64_t apart = which == 0 ? 1 : kTokenRun;
      if constexpr (KV::kHasScales) {
        float most = 0.0f;
        int bad = 0;
        for (int64_t i = group_lane(); i < a.head_dim; i += kGroup) {
          most = V::max(V::abs(x[i]), most);
          bad |= x[i] != x[i];
        }
        most = max16(most);
        const float s = sum16(bad) ? __builtin_nanf("") : most / KV::kLargest;
        if (!is_real) continue;
        for (int64_t i = group_lane(); i < a.head_dim; i += kGroup) {
          const float q = s > 0.0f ? x[i] / s : 0.0f;
          to[i * apart] = KV::code_of(q > KV::kLargest ? KV::kLargest : q > -KV::kLargest ? q : -KV::kLargest);
        }
        if (group_lane() == 0) *(which == 0 ? pages.key_scale(position) : pages.value_scale(position)) = s;
      } else {
        if (!is_real) continue;
        for (int64_t i = group_lane(); i < a.head_dim; i += kGroup) to[i * apart] = KV::narrow(x[i]);
      }
    }
  });
}

// Whole pages, pairs in order: each thread moves its words of all pairs, one pair after the other.
OCTAVO_GPU_FN void copy_blocks(const Step& step, const CopyBlocksArgs& a) {
  for (int64_t at = (static_cast<int64_t>(block_x()) * kRowThreads + thread()) * 8; at < a.page_bytes;
       at += static_cast<int64_t>(num_blocks_x()) * kRowThreads * 8)
    for (int32_t i = 0; i < a.pairs[0]; ++i) {
      const uint8_t* from = step.pool + a.pairs[1 + 2 * i] * a.page_bytes;
      uint8_t* to = step.pool + a.pairs[2 + 2 * i] * a.page_bytes;
      *reinterpret_cast<uint64_t*>(to + at) = *reinterpret_cast<const uint64_t*>(from + at);
    }
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(kv_append_f32, simt, KVAppend, 256, 16, 0) { octavo::gpu::kv_append<octavo::gpu::KVF32>(*step_, a); }
OCTAVO_KERNEL(kv_append_bf16, simt, KVAppend, 256, 16, 0) { octavo::gpu::kv_append<octavo::gpu::KVBF16>(*step_, a); }
OCTAVO_KERNEL(kv_append_f16, simt, KVAppend, 256, 16, 0) { octavo::gpu::kv_append<octavo::gpu::KVF16>(*step_, a); }
OCTAVO_KERNEL(kv_append_int8, simt, KVAppend, 256, 16, 0) { octavo::gpu::kv_append<octavo::gpu::KVI8>(*step_, a); }
OCTAVO_KERNEL(kv_append_fp8, simt, KVAppend, 256, 16, 0) { octavo::gpu::kv_append<octavo::gpu::KVF8>(*step_, a); }
OCTAVO_KERNEL(copy_blocks, simt, CopyBlocks, 256, 1, 0) { octavo::gpu::copy_blocks(*step_, a); }
