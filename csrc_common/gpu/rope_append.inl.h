// rope_append_<kv dtype>: norms of heads, rotation of q and k and what stores k and v, in one launch, with the bits of those apart.
//
// Sixteen threads per (token, head), like rms_norm; a head's values are normed again where they are rotated, so nothing but its factor has
// to be kept. Keys go through memory: the same sixteen threads store them in pages, by kv_append's own code.
#pragma once

#include "contract/fused.h"
#include "gpu/kv_append.inl.h"

namespace octavo::gpu {

// The heads of q, or of k: where they lie, how many, their norm.
struct HeadRows {
  const float* x;
  int64_t ldx, heads;
  float* y;
  int64_t ldy;
  bool has_norm;
  const float* weight;
  float eps;
};

OCTAVO_GPU_FN void rotate_heads(const Step& step, const RopeAppendArgs& a, const HeadRows& h) {
  each_row(step.num_tokens * h.heads, [&](int64_t unit, bool is_real) {
    const int64_t token = unit / h.heads, head = unit % h.heads;
    const float* x = h.x + token * h.ldx + head * a.head_dim;
    float r = 1.0f;
    if (h.has_norm) {
      const float sum = sum16_squares(a.head_dim, [&](int64_t i) { return x[i]; });
      r = 1.0f / V::sqrt(sum / static_cast<float>(a.head_dim) + h.eps);
    }
    if (!is_real) return;
    const auto value = [&](int64_t i) {
      if (!h.has_norm) return x[i];
      const float v = x[i] * r;
      return h.weight ? v * h.weight[i] : v;
    };
    float* y = h.y + token * h.ldy + head * a.head_dim;
    const int64_t half = a.rotary_dim / 2;
    const float* table = a.table + static_cast<int64_t>(step.positions[token]) * a.rotary_dim;
    for (int64_t pair = group_lane(); pair < half; pair += kGroup) {
      const int64_t first = a.interleaved ? 2 * pair : pair, second = a.interleaved ? first + 1 : pair + half;
      const float c = table[pair], s = table[half + pair], x1 = value(first), x2 = value(second);
      y[first] = V::fma(x1, c, -(x2 * s));
      y[second] = V::fma(x2, c, x1 * s);
    }
    for (int64_t i = 2 * half + group_lane(); i < a.head_dim; i += kGroup) y[i] = value(i);
  });
}

template <class KV>
OCTAVO_GPU_FN void rope_append(const Step& step, const RopeAppendArgs& a) {
  rotate_heads(step, a, {a.q, a.ldq, a.heads, a.y, a.ldy, a.has_q_norm != 0, a.q_weight, a.q_eps});
  rotate_heads(step, a, {a.k, a.ldk, a.kv_heads, a.key, a.ldkey, a.has_k_norm != 0, a.k_weight, a.k_eps});
  sync();
  kv_append<KV>(step, {a.key, a.ldkey, a.v, a.ldv, a.kv_heads, a.head_dim, a.block_tokens, a.page_bytes, a.layer_offset, a.group,
                       a.kv_type});
}

}  // namespace octavo::gpu

#define OCTAVO_ROPE_APPEND(dtype, KV) \
  OCTAVO_KERNEL(rope_append_##dtype, simt, RopeAppend, 256, 16, 0) { octavo::gpu::rope_append<octavo::gpu::KV>(*step_, a); }
OCTAVO_ROPE_APPEND(f32, KVF32)
OCTAVO_ROPE_APPEND(bf16, KVBF16)
OCTAVO_ROPE_APPEND(f16, KVF16)
OCTAVO_ROPE_APPEND(int8, KVI8)
OCTAVO_ROPE_APPEND(fp8, KVF8)
