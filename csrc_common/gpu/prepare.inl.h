// prepare_bf16, prepare_i8gN, prepare_i8row: float32 rows -> the input form of a weight format (contract/linear.h), with the
// bits of CPUs (csrc_common/ref/prepare.inl.h says what becomes of zeros, infinities and NaN). prepare_f16row and prepare_f16pair
// are the forms of products on float16 matrix units, which only GPUs have: rows divided by a power of two that brings their peak
// into [2^14, 2^15), so that no value overflows float16 and only what is 2^28 times smaller than its row's peak loses bits.
//
// gated_prepare_<form>: the same of x * act(gate), what lies between the products of a gated MLP. `Args` says which.
#pragma once

#include "contract/fused.h"
#include "gpu/epilogue.inl.h"
#include "vec/fp8.h"

namespace octavo::gpu {

OCTAVO_GPU_FN float gated_value(const float* x, const float* gate, int32_t activation) { return *x * activate(*gate, activation); }
// A value to be prepared.
OCTAVO_GPU_FN float source(const PrepareArgs& a, int64_t row, int64_t i) { return a.x[row * a.ldx + i]; }
OCTAVO_GPU_FN float source(const GatedPrepareArgs& a, int64_t row, int64_t i) {
  return gated_value(a.x + row * a.ldx + i, a.gate + row * a.ldgate + i, a.activation);
}

template <class Args>
OCTAVO_GPU_FN void prepare_bf16(const Step& step, const Args& a) {
  each_element(num_rows(a.rows, step), round_up(a.k, 32), [&](int64_t row, int64_t i) {
    static_cast<uint16_t*>(a.q)[row * a.ldq + i] = i < a.k ? vec::bf16_of(source(a, row, i)) : static_cast<uint16_t>(0);
  });
}

// amax / 127 of what sixteen threads saw; NaN if one of them saw what is not finite.
OCTAVO_GPU_FN float scale_of(float most, float poison) {
  most = max16(most);
  return sum16(poison == 0.0f ? 0 : 1) ? __builtin_nanf("") : most / 127.0f;
}
OCTAVO_GPU_FN int code_of(float x, float s) { return s > 0.0f ? static_cast<int>(V::cvt_i32(x / s)) : 0; }

// Inputs of a sum of codes: groups of 256, those of K-quants, have one per thread's run.
template <int n>
constexpr int kSumEvery = n == 256 ? n / kGroup : n;
// A thread's run of a group's inputs -> codes; its group's scale and sums by those who have them.
template <int n, class Args>
OCTAVO_GPU_FN void store_i8(const Args& a, int64_t row, int64_t g, const float (&x)[n / kGroup], float most, float poison, bool is_real) {
  constexpr int kRun = n / kGroup, sum_every = kSumEvery<n>;
  const float s = scale_of(most, poison);
  int8_t* q = static_cast<int8_t*>(a.q) + row * a.ldq + g * n + group_lane() * kRun;
  int32_t sum = 0;
  for (int i = 0; i < kRun; ++i) {
    const int code = code_of(x[i], s);
    sum += code;
    if (is_real) q[i] = static_cast<int8_t>(code);
  }
  if constexpr (sum_every == n) sum = sum16(sum);
  if (!is_real) return;
  int32_t* sums = a.sums + (row * a.lds + g) * (n / sum_every);
  if (sum_every != n) sums[group_lane()] = sum;
  if (group_lane() != 0) return;
  if (sum_every == n) sums[0] = sum;
  a.scales[row * a.lds + g] = s;
}

// Groups of n inputs, each by sixteen threads with a run of n / 16.
template <int n, class Args>
OCTAVO_GPU_FN void prepare_i8(const Step& step, const Args& a) {
  constexpr int kRun = n / kGroup;
  const int64_t groups = (a.k + n - 1) / n;
  each_row(num_rows(a.rows, step) * groups, [&](int64_t unit, bool is_real) {
    const int64_t row = unit / groups, g = unit % groups, first = g * n + group_lane() * kRun;
    float x[kRun], most = 0.0f, poison = 0.0f;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      x[i] = first + i < a.k ? source(a, row, first + i) : 0.0f;
      most = V::max(V::abs(x[i]), most);
      poison = V::fma(x[i], 0.0f, poison);
    }
    store_i8<n>(a, row, g, x, most, poison, is_real);
  });
}

// The greatest magnitude of a row by all threads of a block, of which each gets it; NaN if a value is not finite. `peaks`: kGroups
// floats of shared memory.
template <class Args>
OCTAVO_GPU_FN float row_peak(const Args& a, int64_t row, float* peaks) {
  float most = 0.0f, poison = 0.0f;
  for (int64_t i = thread(); i < a.k; i += kRowThreads) {
    const float x = source(a, row, i);
    most = V::max(V::abs(x), most);
    poison = V::fma(x, 0.0f, poison);
  }
  most = max16(most);
  if (sum16(poison == 0.0f ? 0 : 1)) most = __builtin_nanf("");
  if (group_lane() == 0) peaks[group()] = most;
  sync();
  const float theirs = peaks[group_lane()];
  sync();
  return sum16(theirs == theirs ? 0 : 1) ? __builtin_nanf("") : max16(theirs);
}

template <class Args>
OCTAVO_GPU_FN void prepare_i8row(const Step& step, const Args& a) {
  OCTAVO_SHARED(float, peaks, kGroups);
  OCTAVO_SHARED(int32_t, sums, kGroups);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float s = row_peak(a, row, peaks) / 127.0f;
    int32_t sum = 0;
    for (int64_t i = thread(); i < round_up(a.k, 64); i += kRowThreads) {
      const int code = i < a.k ? code_of(source(a, row, i), s) : 0;
      sum += code;
      static_cast<int8_t*>(a.q)[row * a.ldq + i] = static_cast<int8_t>(code);
    }
    sum = sum16(sum);
    if (group_lane() == 0) sums[group()] = sum;
    sync();
    const int32_t all = sum16(sums[group_lane()]);
    if (thread() == 0) a.scales[row * a.lds] = s, a.sums[row * a.lds] = all;
    sync();
  }
}

// `is_pair`: what float16 leaves of a value is kept as another float16, behind all of the first ones, inputs in order. Else every
// four inputs lie in the order 0, 2, 1, 3, in which codes come out of their bytes (gpu/linear_halves.inl.h). Rows end with zeros up
// to a whole record of 128 inputs. NaN or infinities make the scale NaN.
template <bool is_pair, class Args>
OCTAVO_GPU_FN void prepare_f16(const Step& step, const Args& a) {
  OCTAVO_SHARED(float, peaks, kGroups);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float most = row_peak(a, row, peaks);
    const bool is_bad = most != most;
    int exponent = static_cast<int>(static_cast<uint32_t>(word_of_float(most)) >> 23) - 14;  // of the scale, as it is stored
    if (exponent < 1) exponent = 1;
    const float inverse = is_bad ? 0.0f : float_of_word((254 - exponent) << 23);
    uint16_t* q = static_cast<uint16_t*>(a.q) + row * a.ldq;
    const int64_t width = round_up(a.k, 128);
    for (int64_t i = thread(); i < width; i += kRowThreads) {
      const float v = i < a.k && !is_bad ? source(a, row, i) * inverse : 0.0f;
      const uint16_t half = vec::f16_of(v);
      const int64_t in_four = i % 4;
      q[is_pair ? i : i - in_four + (in_four == 0 || in_four == 3 ? in_four : 3 - in_four)] = half;
      if constexpr (is_pair) q[width + i] = vec::f16_of(v - vec::float_of_f16(half));
    }
    if (thread() == 0) a.scales[row * a.lds] = is_bad ? __builtin_nanf("") : float_of_word(exponent << 23);
  }
}

// An E4M3 code, -0 as 0: so that a code has half its value where a chip reads it as FNUZ, which has no -0.
OCTAVO_GPU_FN uint8_t f8_code(float x, float s) { return s > 0.0f ? vec::fnuz_of(vec::E4M3FN::encode(x / s, true)) : static_cast<uint8_t>(0); }
OCTAVO_GPU_FN float f8_scale(float most, float poison, bool is_mx) {
  most = max16(most);
  if (sum16(poison == 0.0f ? 0 : 1)) return __builtin_nanf("");
  if (!is_mx) return most / 448.0f;
  // The least power of two, from 2^-126 on, with most <= 448 of it; 448 is 1.75 x 2^8.
  const auto bits = static_cast<uint32_t>(word_of_float(most));
  const int code = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7FFFFFu) > 0x600000u);
  return float_of_word((code < 1 ? 1 : code) << 23);
}

// E4M3 per group of n inputs, each by sixteen threads; groups of zeros up to a whole record of 128.
template <int n, bool is_mx>
OCTAVO_GPU_FN void prepare_f8(const Step& step, const PrepareArgs& a) {
  constexpr int kRun = n / kGroup;
  const int64_t real = (a.k + n - 1) / n, groups = round_up(a.k, 128) / n;
  each_row(num_rows(a.rows, step) * groups, [&](int64_t unit, bool is_real) {
    const int64_t row = unit / groups, g = unit % groups, first = g * n + group_lane() * kRun;
    float x[kRun], most = 0.0f, poison = 0.0f;
    for (int i = 0; i < kRun; ++i) {
      x[i] = first + i < a.k ? a.x[row * a.ldx + first + i] : 0.0f;
      most = V::max(V::abs(x[i]), most);
      poison = V::fma(x[i], 0.0f, poison);
    }
    const float s = f8_scale(most, poison, is_mx);
    if (!is_real) return;
    for (int i = 0; i < kRun; ++i) static_cast<uint8_t*>(a.q)[row * a.ldq + first + i] = f8_code(x[i], s);
    if (group_lane() == 0 && g < real) a.scales[row * a.lds + g] = s;
  });
}

OCTAVO_GPU_FN void prepare_f8row(const Step& step, const PrepareArgs& a) {
  OCTAVO_SHARED(float, peaks, kGroups);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float* x = a.x + row * a.ldx;
    const float s = row_peak(a, row, peaks) / 448.0f;
    uint8_t* q = static_cast<uint8_t*>(a.q) + row * a.ldq;
    for (int64_t i = thread(); i < round_up(a.k, 128); i += kRowThreads) q[i] = i < a.k ? f8_code(x[i], s) : static_cast<uint8_t>(0);
    if (thread() == 0) a.scales[row * a.lds] = s;
  }
}

}  // namespace octavo::gpu

#define OCTAVO_PREPARE(form, tile_rows, tile_outs, call)                                                                     \
  OCTAVO_KERNEL(prepare_##form, simt, Prepare, 256, tile_rows, tile_outs) { octavo::gpu::call(*step_, a); }                  \
  OCTAVO_KERNEL(gated_prepare_##form, simt, GatedPrepare, 256, tile_rows, tile_outs) { octavo::gpu::call(*step_, a); }
OCTAVO_PREPARE(bf16, 1, 256, prepare_bf16)
OCTAVO_PREPARE(i8g32, 16, 0, prepare_i8<32>)
OCTAVO_PREPARE(i8g64, 16, 0, prepare_i8<64>)
OCTAVO_PREPARE(i8g128, 16, 0, prepare_i8<128>)
OCTAVO_PREPARE(i8g256, 16, 0, prepare_i8<256>)
OCTAVO_PREPARE(i8row, 16, 0, prepare_i8row)
OCTAVO_PREPARE(f16row, 16, 0, prepare_f16<false>)
OCTAVO_PREPARE(f16pair, 16, 0, prepare_f16<true>)
OCTAVO_KERNEL(prepare_f8row, simt, Prepare, 256, 16, 0) { octavo::gpu::prepare_f8row(*step_, a); }
OCTAVO_KERNEL(prepare_f8g128, simt, Prepare, 256, 16, 0) { octavo::gpu::prepare_f8<128, false>(*step_, a); }
OCTAVO_KERNEL(prepare_f8g32, simt, Prepare, 256, 16, 0) { octavo::gpu::prepare_f8<32, true>(*step_, a); }
OCTAVO_KERNEL(gated, simt, Gated, 256, 1, 256) {
  octavo::gpu::each_element(octavo::num_rows(a.rows, *step_), a.width, [&](int64_t row, int64_t i) {
    a.y[row * a.ldy + i] = octavo::gpu::gated_value(a.x + row * a.ldx + i, a.gate + row * a.ldgate + i, a.activation);
  });
}
