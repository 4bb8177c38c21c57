// kv_append_{f32,bf16,f16,int8,fp8}: stores the step's keys and values in their pages, rounded to the KV dtype.
//
// Each head's vector is first converted in scratch, then spread: a key goes as head_dim / 2 pairs, 32 pairs apart; a value as
// head_dim elements, two apart. Slots of tokens that do not exist yet are left alone: attention never reads them as values.
// Codes: s = amax / 127 (int8) or / 448 (fp8), q = half-even(x / s) or the nearest E4M3, within +-127 or 448; s = 0 gives zeros, a
// NaN a NaN scale.
#include "attention/pages.h"
#include "vec/fp8.h"
#include "vec/narrow.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

struct StoreF32 {
  using T = float;
  using Pair = uint64_t;
  static float convert(const float* x, T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = vec::F32x1::abs(x[i]) < 0x1p-126f ? vec::F32x1::copysign(0.0f, x[i]) : x[i];
    return 0.0f;
  }
};

struct StoreBF16 {
  using T = uint16_t;
  using Pair = uint32_t;
  static float convert(const float* x, T* y, int64_t n) {
    vec::narrow_row<V>(x, n, y);
    return 0.0f;
  }
};

struct StoreF16 {
  using T = uint16_t;
  using Pair = uint32_t;
  static float convert(const float* x, T* y, int64_t n) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::store_f16(y + i, V::load(x + i));
    for (; i < n; ++i) y[i] = vec::f16_of(x[i]);
    return 0.0f;
  }
};

// The scale of codes up to `top`: amax / top, or NaN.
inline float scale_of(const float* x, int64_t n, float top) {
  float amax = 0.0f;
  bool has_nan = false;
  int64_t i = 0;
#if defined(__aarch64__)  // magnitudes are in the order of their bits, NaNs above all
  uint32x4_t most = vdupq_n_u32(0);
  for (; i + 4 <= n; i += 4) most = vmaxq_u32(most, vbicq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x80000000u)));
  const uint32_t bits = vmaxvq_u32(most);
  std::memcpy(&amax, &bits, sizeof bits);
  has_nan = amax != amax;
#endif
  for (; i < n; ++i) {
    amax = vec::F32x1::max(vec::F32x1::abs(x[i]), amax);
    has_nan |= x[i] != x[i];
  }
  return has_nan ? __builtin_nanf("") : amax / top;
}

struct StoreI8 {
  using T = int8_t;
  using Pair = uint16_t;
  static float convert(const float* x, T* y, int64_t n) {
    const float s = scale_of(x, n, 127.0f);
    if (!(s > 0.0f)) {
      std::memset(y, 0, static_cast<size_t>(n));
      return s;
    }
    int64_t i = 0;
#if defined(__aarch64__)
    for (; i + 8 <= n; i += 8) {
      const int32x4_t low = V::cvt_i32(V::div(V::load(x + i), V::broadcast(s)));
      const int32x4_t high = V::cvt_i32(V::div(V::load(x + i + 4), V::broadcast(s)));
      vst1_s8(y + i, vmovn_s16(vuzp1q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high))));
    }
#endif
    for (; i < n; ++i) {
      float q = __builtin_rintf(x[i] / s);
      q = q > 127.0f ? 127.0f : q > -127.0f ? q : -127.0f;
      y[i] = static_cast<int8_t>(static_cast<int32_t>(q));
    }
    return s;
  }
};

struct StoreF8 {
  using T = uint8_t;
  using Pair = uint16_t;
  static float convert(const float* x, T* y, int64_t n) {
    const float s = scale_of(x, n, 448.0f);
    if (!(s > 0.0f)) {
      std::memset(y, 0, static_cast<size_t>(n));
      return s;
    }
    for (int64_t i = 0; i < n; ++i) {
      const float q = x[i] / s;
      y[i] = vec::e4m3_of(q > 448.0f ? 448.0f : q > -448.0f ? q : -448.0f);
    }
    return s;
  }
};

template <class S>
void append_one(const HeadPages& pages, int64_t position, const float* k, const float* v, typename S::T* row) {
  using T = typename S::T;
  using Pair = typename S::Pair;
  const int64_t dim = pages.head_dim, token = position % kTileTokens;
  const float k_scale = S::convert(k, row, dim);
  T* k_tile = reinterpret_cast<T*>(pages.k_tile(position)) + 2 * token;
  for (int64_t i = 0; i < dim / 2; ++i) std::memcpy(k_tile + i * 2 * kTileTokens, row + 2 * i, sizeof(Pair));
  const float v_scale = S::convert(v, row, dim);
  T* v_tile = reinterpret_cast<T*>(pages.v_tile(position)) + token / 2 * dim * 2 + token % 2;
  for (int64_t i = 0; i < dim; ++i) v_tile[2 * i] = row[i];
  if constexpr (sizeof(T) == 1) {
    pages.k_scales(position)[token] = k_scale;
    pages.v_scales(position)[token] = v_scale;
  }
}

constexpr int64_t kWork = 8;  // of a value, which is spread, in values that are walked

template <class S>
void append(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const KVAppendArgs*>(raw);
  auto* row = static_cast<typename S::T*>(lane.scratch);
  // Tokens per unit: neighbours of a sequence share cache lines of a tile, others share nothing.
  const int64_t run = step.num_tokens > step.num_seqs ? 16 : lane.worthwhile(step.num_tokens, kWork * a.kv_heads * a.head_dim);
  for (int64_t begin, end; lane.claim(step.num_tokens, run, &begin, &end);)
    for (int64_t h = 0; h < a.kv_heads; ++h)
      for (int64_t t = begin; t < end; ++t) {
        const int64_t s = step.token_seq[t];
        const HeadPages pages(a, step, s, h);
        const int64_t position = step.kv_len[s] - (step.query_start[s + 1] - t);
        append_one<S>(pages, position, a.k + t * a.ldk + h * a.head_dim, a.v + t * a.ldv + h * a.head_dim, row);
      }
}

}  // namespace

void kv_append_f32(const void* raw, const Step& step, const Lane& lane) { append<StoreF32>(raw, step, lane); }
void kv_append_bf16(const void* raw, const Step& step, const Lane& lane) { append<StoreBF16>(raw, step, lane); }
void kv_append_f16(const void* raw, const Step& step, const Lane& lane) { append<StoreF16>(raw, step, lane); }
void kv_append_int8(const void* raw, const Step& step, const Lane& lane) { append<StoreI8>(raw, step, lane); }
void kv_append_fp8(const void* raw, const Step& step, const Lane& lane) { append<StoreF8>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
