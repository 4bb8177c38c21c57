// paged_attention_<kv dtype>, varlen_attention and relative_attention on the plain arithmetic units, with the bits of CPUs
// (docs/numerics.md, "Attention"): segments of 512 positions, folded left. A block computes one head of one query: its threads
// first share out the positions of a segment for the scores, then the dimensions for the weighted values.
#pragma once

#include "gpu/pages.inl.h"

namespace octavo::gpu {

constexpr int kAttentionThreads = 128;
constexpr int kSegment = 512;
constexpr int kMostDim = 256;
constexpr int kOwn = kMostDim / kAttentionThreads;  // dimensions of a thread

// One head of one query: what it sees, and how scores are made.
struct Query {
  const float* q;
  int64_t head_dim, position, low, high;  // positions low <= j <= high are seen
  float scale, softcap, slope;
  bool has_slope;
  const float* bias = nullptr;  // of the query's own position, by the distance of a key up to `reach`
  int64_t reach = 0;
};

struct Shared {
  float* q;        // [kMostDim], zero-padded to whole blocks of 32
  float* weights;  // [kSegment]
  float* waves;    // one float per wave
};

// The maximum over the block.
OCTAVO_GPU_FN float block_max(float x, float* waves) {
  for (int apart = kWave / 2; apart > 0; apart /= 2) x = V::max(x, shuffle_xor(x, apart));
  sync();
  if (lane() == 0) waves[wave()] = x;
  sync();
  x = waves[0];
  for (int w = 1; w < kAttentionThreads / kWave; ++w) x = V::max(x, waves[w]);
  return x;
}

// sum16 of the segment's weights; every group of sixteen threads computes it.
OCTAVO_GPU_FN float weight_sum(const float* weights) {
  float sum = 0.0f;
  for (int i = group_lane(); i < kSegment; i += kGroup) sum = sum + weights[i];
  return fold16(sum);
}

// Whether scores ask how far apart key and query stand (RelativeKeys).
template <class Keys>
constexpr bool kIsRelative = false;

// dot32 of the query with a key.
template <class Keys>
OCTAVO_GPU_FN float score_of(const Query& q, const float* x, const Keys& keys, int64_t j) {
  const auto* k = keys.key(j);
  float acc = 0.0f;
  for (int64_t block = 0; block < q.head_dim; block += 32) {
    float even = 0.0f, odd = 0.0f;
#pragma unroll 4
    for (int64_t i = block; i < block + 32; i += 2) {  // head_dim is even
      even = V::fma(x[i], i < q.head_dim ? Keys::widen(k[i]) : 0.0f, even);
      odd = V::fma(x[i + 1], i < q.head_dim ? Keys::widen(k[i + 1]) : 0.0f, odd);
    }
    acc = acc + (even + odd);
  }
  float s = acc;
  if constexpr (Keys::kHasScales) s = s * *keys.key_scale(j);
  s = s * q.scale;
  if (q.softcap != 0.0f) s = q.softcap * vec::tanh<V>(s / q.softcap);
  if (q.has_slope) {
    const int64_t apart = j < q.position ? q.position - j : j - q.position;
    s = s + q.slope * -static_cast<float>(apart);
  }
  if (q.bias) {
    const int64_t apart = j - q.position;
    s = s + q.bias[apart < -q.reach ? -q.reach : apart > q.reach ? q.reach : apart];
  }
  if constexpr (kIsRelative<Keys>) s = s + keys.by_place(x, k, j - q.position, q.head_dim) * q.scale;
  return s;
}

// One segment: weights, their sum and maximum, then the dimensions of this thread of the weighted values.
template <class Keys>
OCTAVO_GPU_FN void segment(const Query& q, const Shared& shared, const Keys& keys, int64_t begin, float (&out)[kOwn], float* total,
                             float* top) {
  constexpr int kEach = kSegment / kAttentionThreads;
  float scores[kEach], most = -__builtin_inff();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t j = begin + i * kAttentionThreads + thread();
    scores[i] = 0.0f;
    if (j < q.low || j > q.high) continue;
    scores[i] = score_of(q, shared.q, keys, j);
    most = V::max(scores[i], most);
  }
  most = block_max(most, shared.waves);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t j = begin + i * kAttentionThreads + thread();
    const bool is_seen = j >= q.low && j <= q.high;
    shared.weights[i * kAttentionThreads + thread()] = is_seen ? vec::exp_below<V>(scores[i] - most) : 0.0f;
  }
  sync();
  *total = weight_sum(shared.weights);
  *top = most;
  if constexpr (Keys::kRounds) {
    sync();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t j = begin + i * kAttentionThreads + thread();
      float& w = shared.weights[i * kAttentionThreads + thread()];
      if constexpr (Keys::kHasScales) w = j >= q.low && j <= q.high ? w * *keys.value_scale(j) : 0.0f;
      w = vec::float_of_bf16(vec::bf16_of(w));
    }
    sync();
  }
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    const int64_t d = own * kAttentionThreads + thread();
    out[own] = 0.0f;
    if (d >= q.head_dim) continue;
    for (int64_t block = begin; block < begin + kSegment; block += 32) {
      if (block > q.high || block + 31 < q.low) continue;
      float even = 0.0f, odd = 0.0f;
#pragma unroll 4
      for (int64_t j = block; j < block + 32; j += 2) {
        const bool first = j >= q.low && j <= q.high, second = j + 1 >= q.low && j + 1 <= q.high;
        even = V::fma(shared.weights[j - begin], first ? Keys::widen(*keys.value(j, d)) : 0.0f, even);
        odd = V::fma(shared.weights[j + 1 - begin], second ? Keys::widen(*keys.value(j + 1, d)) : 0.0f, odd);
      }
      out[own] = out[own] + (even + odd);
    }
  }
}

// Folds segments left to right and writes y [head_dim].
template <class Keys>
OCTAVO_GPU_FN void attend(const Query& q, const Shared& shared, const Keys& keys, const float* sink, float* y) {
  sync();
  for (int64_t i = thread(); i < kMostDim; i += kAttentionThreads) {
    const float x = i < q.head_dim ? q.q[i] : 0.0f;
    shared.q[i] = Keys::kRounds ? vec::float_of_bf16(vec::bf16_of(x)) : x;
  }
  sync();
  float acc[kOwn] = {}, sum = 0.0f, top = -__builtin_inff();
  for (int64_t begin = q.low / kSegment * kSegment; begin <= q.high; begin += kSegment) {
    float out[kOwn], part_sum, part_top;
    segment(q, shared, keys, begin, out, &part_sum, &part_top);
    if (begin <= q.low) {
#pragma unroll
      for (int own = 0; own < kOwn; ++own) acc[own] = out[own];
      sum = part_sum;
      top = part_top;
      continue;
    }
    const float new_top = V::max(top, part_top), a = vec::exp_below<V>(top - new_top), b = vec::exp_below<V>(part_top - new_top);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) acc[own] = V::fma(acc[own], a, out[own] * b);
    sum = V::fma(sum, a, part_sum * b);
    top = new_top;
  }
  const bool has_seen = q.low <= q.high;
  if (sink && has_seen) {
    const float new_top = V::max(top, *sink), a = vec::exp_below<V>(top - new_top);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) acc[own] = acc[own] * a;
    sum = V::fma(sum, a, vec::exp_below<V>(*sink - new_top));
  }
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    const int64_t d = own * kAttentionThreads + thread();
    if (d < q.head_dim) y[d] = has_seen ? acc[own] / sum : 0.0f;
  }
}

template <class KV>
struct PagedKeys : KV {
  using T = typename KV::T;
  HeadPages<KV> pages;
  OCTAVO_GPU_FN explicit PagedKeys(const HeadPages<KV>& p) : pages(p) {}
  OCTAVO_GPU_FN const T* key(int64_t j) const { return pages.key(j); }
  OCTAVO_GPU_FN const T* value(int64_t j, int64_t d) const { return pages.value(j) + d * kTokenRun; }
  OCTAVO_GPU_FN const float* key_scale(int64_t j) const { return pages.key_scale(j); }
  OCTAVO_GPU_FN const float* value_scale(int64_t j) const { return pages.value_scale(j); }
};

#define OCTAVO_ATTENTION_SHARED(shared)                                    \
  OCTAVO_SHARED(float, shared_q, kMostDim);                                \
  OCTAVO_SHARED(float, shared_weights, kSegment);                          \
  OCTAVO_SHARED(float, shared_waves, kAttentionThreads / 32);              \
  const Shared shared { shared_q, shared_weights, shared_waves }

template <class KV>
OCTAVO_GPU_FN void paged_attention(const Step& step, const PagedAttentionArgs& a) {
  OCTAVO_ATTENTION_SHARED(shared);
  const int64_t head = block_y(), kv_head = head / (a.heads / a.kv_heads);
  OCTAVO_EACH(token, step.num_tokens) {
    const int64_t seq = step.token_seq[token], p = position_of(step, token);
    const int64_t low = a.window > 0 && p - a.window + 1 > 0 ? p - a.window + 1 : 0;
    const Query q{a.q + token * a.ldq + head * a.head_dim, a.head_dim, p, low, p, a.scale, a.softcap,
                  a.alibi ? a.alibi[head] : 0.0f, a.alibi != nullptr};
    const PagedKeys<KV> keys(HeadPages<KV>(a, step, seq, kv_head));
    attend(q, shared, keys, a.sinks ? a.sinks + head : nullptr, a.y + token * a.ldy + head * a.head_dim);
  }
}

struct RowKeys : KVF32 {
  const float *k, *v;
  int64_t ldk, ldv;
  OCTAVO_GPU_FN const float* key(int64_t j) const { return k + j * ldk; }
  OCTAVO_GPU_FN const float* value(int64_t j, int64_t d) const { return v + j * ldv + d; }
};

// Keys and values rounded as they are read.
struct RoundedRowKeys : RowKeys {
  static constexpr bool kRounds = true;
  static OCTAVO_GPU_FN float widen(float x) { return vec::float_of_bf16(vec::bf16_of(x)); }
};

template <class Keys>
OCTAVO_GPU_FN void varlen_attention(const Step& step, const VarlenAttentionArgs& a) {
  OCTAVO_ATTENTION_SHARED(shared);
  const int64_t head = block_y(), kv_head = head / (a.heads / a.kv_heads);
  OCTAVO_EACH(token, step.num_tokens) {
    const int64_t seq = step.token_seq[token], first = step.query_start[seq], last = step.query_start[seq + 1] - 1 - first;
    const int64_t p = token - first;
    const int64_t low = a.window > 0 && p > a.window ? p - a.window : 0;
    const int64_t high = a.causal ? p : a.window > 0 && p + a.window < last ? p + a.window : last;
    const Query q{a.q + token * a.ldq + head * a.head_dim, a.head_dim, p, low, high, a.scale, 0.0f, a.alibi ? a.alibi[head] : 0.0f,
                  a.alibi != nullptr, a.bias ? a.bias + head * (2 * a.reach + 1) + a.reach : nullptr, a.reach};
    Keys keys;
    keys.k = a.k + first * a.ldk + kv_head * a.head_dim;
    keys.v = a.v + first * a.ldv + kv_head * a.head_dim;
    keys.ldk = a.ldk;
    keys.ldv = a.ldv;
    attend(q, shared, keys, nullptr, a.y + token * a.ldy + head * a.head_dim);
  }
}

// Keys that meet rows of tables by their distance from the query.
template <class Keys>
struct RelativeKeys : Keys {
  const float *rel_k, *rel_q;  // of the head, or null
  const int32_t* by_distance;
  int64_t reach;
  // dot32 of a row with the query or a key; the row is rounded as keys are, `of(i)` gives the other side's values.
  template <class Of>
  static OCTAVO_GPU_FN float dot(const float* row, int64_t dim, Of of) {
    float acc = 0.0f;
    for (int64_t block = 0; block < dim; block += 32) {
      float even = 0.0f, odd = 0.0f;
      for (int64_t i = block; i < block + 32; i += 2) {
        even = V::fma(i < dim ? of(i) : 0.0f, i < dim ? Keys::widen(row[i]) : 0.0f, even);
        odd = V::fma(i < dim ? of(i + 1) : 0.0f, i < dim ? Keys::widen(row[i + 1]) : 0.0f, odd);
      }
      acc = acc + (even + odd);
    }
    return acc;
  }
  OCTAVO_GPU_FN float by_place(const float* q, const float* k, int64_t apart, int64_t dim) const {
    const int64_t at = by_distance[reach + (apart < -reach ? -reach : apart > reach ? reach : apart)] * dim;
    const float by_query = rel_k ? dot(rel_k + at, dim, [&](int64_t i) { return q[i]; }) : 0.0f;
    if (!rel_q) return by_query;
    const float by_key = dot(rel_q + at, dim, [&](int64_t i) { return Keys::widen(k[i]); });
    return rel_k ? by_query + by_key : by_key;
  }
};
template <class Keys>
constexpr bool kIsRelative<RelativeKeys<Keys>> = true;

template <class Keys>
OCTAVO_GPU_FN void relative_attention(const Step& step, const RelativeAttentionArgs& a) {
  OCTAVO_ATTENTION_SHARED(shared);
  const int64_t head = block_y(), table = head * a.buckets * a.head_dim;
  OCTAVO_EACH(token, step.num_tokens) {
    const int64_t seq = step.token_seq[token], first = step.query_start[seq], last = step.query_start[seq + 1] - 1 - first;
    const Query q{a.q + token * a.ldq + head * a.head_dim, a.head_dim, token - first, 0, last, a.scale, 0.0f, 0.0f, false};
    RelativeKeys<Keys> keys;
    keys.k = a.k + first * a.ldk + head * a.head_dim;
    keys.v = a.v + first * a.ldv + head * a.head_dim;
    keys.ldk = a.ldk;
    keys.ldv = a.ldv;
    keys.rel_k = a.rel_k ? a.rel_k + table : nullptr;
    keys.rel_q = a.rel_q ? a.rel_q + table : nullptr;
    keys.by_distance = a.by_distance;
    keys.reach = a.reach;
    attend(q, shared, keys, nullptr, a.y + token * a.ldy + head * a.head_dim);
  }
}

}  // namespace octavo::gpu

#define OCTAVO_PAGED_ATTENTION(dtype, KV) \
  OCTAVO_KERNEL(paged_attention_##dtype, simt, PagedAttention, 128, 1, 0) { octavo::gpu::paged_attention<octavo::gpu::KV>(*step_, a); }
OCTAVO_PAGED_ATTENTION(f32, KVF32)
OCTAVO_PAGED_ATTENTION(bf16, KVBF16)
OCTAVO_PAGED_ATTENTION(f16, KVF16)
OCTAVO_PAGED_ATTENTION(int8, KVI8)
OCTAVO_PAGED_ATTENTION(fp8, KVF8)
OCTAVO_KERNEL(varlen_attention, simt, VarlenAttention, 128, 1, 0) { octavo::gpu::varlen_attention<octavo::gpu::RowKeys>(*step_, a); }
OCTAVO_KERNEL(varlen_attention_bf16, simt, VarlenAttention, 128, 1, 0) {
  octavo::gpu::varlen_attention<octavo::gpu::RoundedRowKeys>(*step_, a);
}
OCTAVO_KERNEL(relative_attention, simt, RelativeAttention, 128, 1, 0) {
  octavo::gpu::relative_attention<octavo::gpu::RowKeys>(*step_, a);
}
OCTAVO_KERNEL(relative_attention_bf16, simt, RelativeAttention, 128, 1, 0) {
  octavo::gpu::relative_attention<octavo::gpu::RoundedRowKeys>(*step_, a);
}
