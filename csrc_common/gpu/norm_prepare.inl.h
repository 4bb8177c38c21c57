// rms_norm_prepare_<form>: a norm and the input form of the product behind it in one launch, with the bits of the two apart.
//
// A block takes a row. Its threads bring the row into shared memory, one wave adds up squares as the contract's sixteen lanes do, and all of
// them norm and quantize what lies there. Rows too long for that are read again.
#pragma once

#include "contract/fused.h"
#include "gpu/prepare.inl.h"

namespace octavo::gpu {

constexpr int kKeptValues = 8192;  // of a row: 32 KB

// 1 / sqrt(mean of squares + eps) of a row, to all threads; `kept` holds the row, or its end if it is longer.
OCTAVO_GPU_FN float norm_factor(const float* x, int64_t width, float eps, float* kept, float* factor) {
  float sum = 0.0f;
  for (int64_t first = 0; first < width; first += kKeptValues) {
    const int64_t count = width - first < kKeptValues ? width - first : kKeptValues;
    if (first > 0) sync();
    for (int64_t i = thread(); i < count; i += kRowThreads) kept[i] = x[first + i];
    sync();
    if (wave() != 0) continue;
#pragma unroll 8
    for (int64_t i = group_lane(); i < count; i += kGroup) sum = V::fma(kept[i], kept[i], sum);
  }
  if (wave() == 0) {
    sum = fold16(sum);
    if (thread() == 0) *factor = 1.0f / V::sqrt(sum / static_cast<float>(width) + eps);
  }
  sync();
  return *factor;
}

// Calls prepare(row, value) for every row: value(i) is a normed value, stored in y on the way if somebody wants it there.
template <class Prepare>
OCTAVO_GPU_FN void norm_rows(const Step& step, const NormPrepareArgs& a, Prepare&& prepare) {
  OCTAVO_SHARED(float, kept, kKeptValues);
  OCTAVO_SHARED(float, factor, 1);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float* x = a.x + row * a.ldx;
    const float r = norm_factor(x, a.width, a.eps, kept, factor);
    const float* from = a.width <= kKeptValues ? kept : x;
    prepare(row, [&](int64_t i) {
      const float v = from[i] * r;
      return a.weight ? v * a.weight[i] : v;
    });
    sync();  // the next row takes its place
  }
}
OCTAVO_GPU_FN void store_normed(const NormPrepareArgs& a, int64_t row, int64_t i, float v) {
  if (a.y) a.y[row * a.ldy + i] = v;
}

OCTAVO_GPU_FN void norm_prepare_bf16(const Step& step, const NormPrepareArgs& a) {
  norm_rows(step, a, [&](int64_t row, auto&& value) {
    uint16_t* q = static_cast<uint16_t*>(a.q) + row * a.ldq;
    for (int64_t i = thread(); i < round_up(a.width, 32); i += kRowThreads) {
      const float v = i < a.width ? value(i) : 0.0f;
      if (i < a.width) store_normed(a, row, i, v);
      q[i] = vec::bf16_of(v);
    }
  });
}

// See prepare_i8: sixteen threads per group of n.
template <int n, int sum_every>
OCTAVO_GPU_FN void norm_prepare_i8(const Step& step, const NormPrepareArgs& a) {
  constexpr int kRun = n / kGroup;
  norm_rows(step, a, [&](int64_t row, auto&& value) {
    const int64_t groups = (a.width + n - 1) / n;
    for (int64_t base = 0; base < groups; base += kGroups) {
      const bool is_real = base + group() < groups;
      const int64_t g = is_real ? base + group() : groups - 1, first = g * n + group_lane() * kRun;
      float x[kRun], most = 0.0f, poison = 0.0f;
      for (int i = 0; i < kRun; ++i) {
        x[i] = first + i < a.width ? value(first + i) : 0.0f;
        if (is_real && first + i < a.width) store_normed(a, row, first + i, x[i]);
        most = V::max(V::abs(x[i]), most);
        poison = V::fma(x[i], 0.0f, poison);
      }
      store_i8<n, sum_every>(a, row, g, x, most, poison, is_real);
    }
  });
}

OCTAVO_GPU_FN void norm_prepare_i8row(const Step& step, const NormPrepareArgs& a) {
  OCTAVO_SHARED(float, scales, kGroups);  // of groups of threads: the row's is the greatest, NaN if one is
  OCTAVO_SHARED(int32_t, sums, kGroups);
  norm_rows(step, a, [&](int64_t row, auto&& value) {
    float most = 0.0f, poison = 0.0f;
    for (int64_t i = thread(); i < a.width; i += kRowThreads) {
      const float v = value(i);
      store_normed(a, row, i, v);
      most = V::max(V::abs(v), most);
      poison = V::fma(v, 0.0f, poison);
    }
    const float mine = scale_of(most, poison);
    if (group_lane() == 0) scales[group()] = mine;
    sync();
    const float theirs = scales[group_lane()];
    const float s = sum16(theirs == theirs ? 0 : 1) ? __builtin_nanf("") : max16(theirs);
    int32_t sum = 0;
    for (int64_t i = thread(); i < round_up(a.width, 64); i += kRowThreads) {
      const int code = i < a.width ? code_of(value(i), s) : 0;
      sum += code;
      static_cast<int8_t*>(a.q)[row * a.ldq + i] = static_cast<int8_t>(code);
    }
    sum = sum16(sum);
    if (group_lane() == 0) sums[group()] = sum;
    sync();
    const int32_t all = sum16(sums[group_lane()]);
    if (thread() != 0) return;
    a.scales[row * a.lds] = s;
    a.sums[row * a.lds] = all;
  });
}

// See prepare_f16: a row's scale is a power of two, from its peak.
template <bool is_pair>
OCTAVO_GPU_FN void norm_prepare_f16(const Step& step, const NormPrepareArgs& a) {
  OCTAVO_SHARED(float, peaks, kGroups);  // of groups of threads; NaN where one saw what is not finite
  norm_rows(step, a, [&](int64_t row, auto&& value) {
    float most = 0.0f, poison = 0.0f;
    for (int64_t i = thread(); i < a.width; i += kRowThreads) {
      const float v = value(i);
      store_normed(a, row, i, v);
      most = V::max(V::abs(v), most);
      poison = V::fma(v, 0.0f, poison);
    }
    most = max16(most);
    if (sum16(poison == 0.0f ? 0 : 1)) most = __builtin_nanf("");
    if (group_lane() == 0) peaks[group()] = most;
    sync();
    const float theirs = peaks[group_lane()];
    const bool is_bad = sum16(theirs == theirs ? 0 : 1) != 0;
    int exponent = static_cast<int>(static_cast<uint32_t>(word_of_float(max16(theirs))) >> 23) - 14;
    if (exponent < 1) exponent = 1;
    const float inverse = is_bad ? 0.0f : float_of_word((254 - exponent) << 23);
    uint16_t* q = static_cast<uint16_t*>(a.q) + row * a.ldq;
    const int64_t width = round_up(a.width, 128);
    for (int64_t i = thread(); i < width; i += kRowThreads) {
      const float v = i < a.width && !is_bad ? value(i) * inverse : 0.0f;
      const uint16_t half = vec::f16_of(v);
      const int64_t in_four = i % 4;
      q[is_pair ? i : i - in_four + (in_four == 0 || in_four == 3 ? in_four : 3 - in_four)] = half;
      if constexpr (is_pair) q[width + i] = vec::f16_of(v - vec::float_of_f16(half));
    }
    if (thread() == 0) a.scales[row * a.lds] = is_bad ? __builtin_nanf("") : float_of_word(exponent << 23);
  });
}

}  // namespace octavo::gpu

#define OCTAVO_NORM_PREPARE(form, call) \
  OCTAVO_KERNEL(rms_norm_prepare_##form, simt, NormPrepare, 256, 1, 0) { octavo::gpu::call(*step_, a); }
OCTAVO_NORM_PREPARE(bf16, norm_prepare_bf16)
OCTAVO_KERNEL(rms_norm_prepare_i8g32, simt, NormPrepare, 256, 1, 0) { octavo::gpu::norm_prepare_i8<32, 32>(*step_, a); }
OCTAVO_KERNEL(rms_norm_prepare_i8g64, simt, NormPrepare, 256, 1, 0) { octavo::gpu::norm_prepare_i8<64, 64>(*step_, a); }
OCTAVO_KERNEL(rms_norm_prepare_i8g128, simt, NormPrepare, 256, 1, 0) { octavo::gpu::norm_prepare_i8<128, 128>(*step_, a); }
OCTAVO_KERNEL(rms_norm_prepare_i8g256, simt, NormPrepare, 256, 1, 0) { octavo::gpu::norm_prepare_i8<256, 16>(*step_, a); }
OCTAVO_NORM_PREPARE(i8row, norm_prepare_i8row)
OCTAVO_NORM_PREPARE(f16row, norm_prepare_f16<false>)
OCTAVO_NORM_PREPARE(f16pair, norm_prepare_f16<true>)
