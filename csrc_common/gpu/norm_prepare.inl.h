// rms_norm_prepare_<form> and layer_norm_prepare_<form>: a norm and the input form of the product behind it in one launch, with the bits
// of the two apart.
//
// A block takes a row. Its threads bring the row into shared memory, one wave adds up as the contract's sixteen lanes do, and all of
// them norm and quantize what lies there. Rows too long for that are read again.
#pragma once

#include "contract/fused.h"
#include "gpu/prepare.inl.h"

namespace octavo::gpu {

constexpr int kKeptValues = 8192;  // of a row: 32 KB

// The sixteen lanes' sum of a row, to the threads of the first wave: sum = add(sum, value) in order. `kept` then holds the row, or
// its end if it is longer; `is_there`: it has been through `kept` before.
template <class Add>
OCTAVO_GPU_FN float sum_of_row(const float* x, int64_t width, float* kept, bool is_there, Add&& add) {
  float sum = 0.0f;
  for (int64_t first = 0; first < width; first += kKeptValues) {
    const int64_t count = width - first < kKeptValues ? width - first : kKeptValues;
    if (!is_there || width > kKeptValues) {
      if (first > 0 || is_there) sync();
      for (int64_t i = thread(); i < count; i += kRowThreads) kept[i] = x[first + i];
      sync();
    }
    if (wave() != 0) continue;
#pragma unroll 8
    for (int64_t i = group_lane(); i < count; i += kGroup) sum = add(sum, kept[i]);
  }
  return wave() == 0 ? fold16(sum) : sum;
}

// What a row is normed by: (x - mean) / sqrt(mean of squares + eps), the mean 0 for rms_norm. To all threads, through `shared`.
struct NormOf {
  float mean, factor;
};
template <bool is_layer>
OCTAVO_GPU_FN NormOf norm_of(const float* x, int64_t width, float eps, float* kept, NormOf* shared) {
  float mean = 0.0f;
  if constexpr (is_layer) mean = sum_of_row(x, width, kept, false, [](float sum, float v) { return sum + v; }) / static_cast<float>(width);
  const float squares = sum_of_row(x, width, kept, is_layer, [&](float sum, float v) {
    if constexpr (is_layer) v = v - mean;
    return V::fma(v, v, sum);
  });
  if (thread() == 0) *shared = {mean, 1.0f / V::sqrt(squares / static_cast<float>(width) + eps)};
  sync();
  return *shared;
}

// Calls prepare(row, value) for every row: value(i) is a normed value, stored in y on the way if somebody wants it there.
template <bool is_layer, class Prepare>
OCTAVO_GPU_FN void norm_rows(const Step& step, const NormPrepareArgs& a, Prepare&& prepare) {
  OCTAVO_SHARED(float, kept, kKeptValues);
  OCTAVO_SHARED(NormOf, shared, 1);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float* x = a.x + row * a.ldx;
    const NormOf of = norm_of<is_layer>(x, a.width, a.eps, kept, shared);
    const float* from = a.width <= kKeptValues ? kept : x;
    prepare(row, [&](int64_t i) {
      const float v = (is_layer ? from[i] - of.mean : from[i]) * of.factor;
      if (is_layer && a.bias) return a.weight ? V::fma(v, a.weight[i], a.bias[i]) : v + a.bias[i];
      return a.weight ? v * a.weight[i] : v;
    });
    sync();  // the next row takes its place
  }
}
OCTAVO_GPU_FN void store_normed(const NormPrepareArgs& a, int64_t row, int64_t i, float v) {
  if (a.y) a.y[row * a.ldy + i] = v;
}

template <bool is_layer>
OCTAVO_GPU_FN void norm_prepare_bf16(const Step& step, const NormPrepareArgs& a) {
  norm_rows<is_layer>(step, a, [&](int64_t row, auto&& value) {
    uint16_t* q = static_cast<uint16_t*>(a.q) + row * a.ldq;
    for (int64_t i = thread(); i < round_up(a.width, 32); i += kRowThreads) {
      const float v = i < a.width ? value(i) : 0.0f;
      if (i < a.width) store_normed(a, row, i, v);
      q[i] = vec::bf16_of(v);
    }
  });
}

// See prepare_i8: sixteen threads per group of n.
template <bool is_layer, int n>
OCTAVO_GPU_FN void norm_prepare_i8(const Step& step, const NormPrepareArgs& a) {
  constexpr int kRun = n / kGroup;
  norm_rows<is_layer>(step, a, [&](int64_t row, auto&& value) {
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
      store_i8<n>(a, row, g, x, most, poison, is_real);
    }
  });
}

template <bool is_layer>
OCTAVO_GPU_FN void norm_prepare_i8row(const Step& step, const NormPrepareArgs& a) {
  OCTAVO_SHARED(float, scales, kGroups);  // of groups of threads: the row's is the greatest, NaN if one is
  OCTAVO_SHARED(int32_t, sums, kGroups);
  norm_rows<is_layer>(step, a, [&](int64_t row, auto&& value) {
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
template <bool is_layer, bool is_pair>
OCTAVO_GPU_FN void norm_prepare_f16(const Step& step, const NormPrepareArgs& a) {
  OCTAVO_SHARED(float, peaks, kGroups);  // of groups of threads; NaN where one saw what is not finite
  norm_rows<is_layer>(step, a, [&](int64_t row, auto&& value) {
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

#define OCTAVO_NORM_PREPARE(form, call, ...)                                   \
  OCTAVO_KERNEL(rms_norm_prepare_##form, simt, NormPrepare, 256, 1, 0) {       \
    octavo::gpu::call<false __VA_ARGS__>(*step_, a);                           \
  }                                                                            \
  OCTAVO_KERNEL(layer_norm_prepare_##form, simt, NormPrepare, 256, 1, 0) {     \
    octavo::gpu::call<true __VA_ARGS__>(*step_, a);                            \
  }
OCTAVO_NORM_PREPARE(bf16, norm_prepare_bf16)
OCTAVO_NORM_PREPARE(i8g32, norm_prepare_i8, , 32)
OCTAVO_NORM_PREPARE(i8g64, norm_prepare_i8, , 64)
OCTAVO_NORM_PREPARE(i8g128, norm_prepare_i8, , 128)
OCTAVO_NORM_PREPARE(i8g256, norm_prepare_i8, , 256)
OCTAVO_NORM_PREPARE(i8row, norm_prepare_i8row)
OCTAVO_NORM_PREPARE(f16row, norm_prepare_f16, , false)
OCTAVO_NORM_PREPARE(f16pair, norm_prepare_f16, , true)
