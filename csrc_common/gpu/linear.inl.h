// linear_<kind> on the plain arithmetic units, with the bits of CPUs: dot32 in its two chains per block of 32 inputs, integer
// sums joined group by group in order. A wave computes one panel of 16 outputs for kRowsAtOnce rows; its lanes are [part][output]
// with kParts parts, which share out a record: dense products give each part a block of 32 inputs of its own and add the blocks'
// sums in order, integer ones give it units of every group. A block is four waves, four panels.
#pragma once

#include "gpu/epilogue.inl.h"
#include "gpu/packed.h"

namespace octavo::gpu {

constexpr int kParts = kWave / kPanel;
constexpr int kLinearWaves = 4;
constexpr int kLinearThreads = kLinearWaves * kWave;
constexpr int kRowsAtOnce = 4;

// This wave's part of the op.
struct Tile {
  int64_t panel, first_row, rows;
  int part, out;
  OCTAVO_GPU_FN Tile(const Step& step, const LinearArgs& a)
      : panel(static_cast<int64_t>(block_y()) * kLinearWaves + wave()), first_row(static_cast<int64_t>(block_x()) * kRowsAtOnce),
        rows(num_rows(a.rows, step)), part(lane() / kPanel), out(lane() % kPanel) {}
  OCTAVO_GPU_FN bool is_empty(const LinearArgs& a) const { return panel * kPanel >= a.n || first_row >= rows; }
  OCTAVO_GPU_FN int64_t row(int r) const { return first_row + r < rows ? first_row + r : rows - 1; }
  OCTAVO_GPU_FN void write(const LinearArgs& a, const float (&acc)[kRowsAtOnce]) const {
    const int64_t at = panel * kPanel + out;
    if (part != 0 || at >= a.n) return;
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (first_row + r < rows) finish(a, first_row + r, at, acc[r]);
  }
};

// The sum over the parts of a wave; every lane gets it.
OCTAVO_GPU_FN int32_t sum_parts(int32_t x) {
  for (int apart = kPanel; apart < kWave; apart *= 2) x += shuffle_xor(x, apart);
  return x;
}

// -- dense ---------------------------------------------------------------------------------------------------------------
struct WeightBF16 {
  using T = uint16_t;
  using X = uint16_t;
  static OCTAVO_GPU_FN float widen(T h) { return vec::float_of_bf16(h); }
  static OCTAVO_GPU_FN float input(X h) { return vec::float_of_bf16(h); }
};
struct WeightF16 {
  using T = uint16_t;
  using X = float;
  static OCTAVO_GPU_FN float widen(T h) { return vec::float_of_f16(h); }
  static OCTAVO_GPU_FN float input(X x) { return x; }
};
struct WeightF32 {
  using T = float;
  using X = float;
  static OCTAVO_GPU_FN float widen(T x) { return x; }
  static OCTAVO_GPU_FN float input(X x) { return x; }
};

// One block of 32 inputs of one output: even chain plus odd chain. `left`: inputs that there are.
template <class W>
OCTAVO_GPU_FN void block_sums(const typename W::T* units, const typename W::X* const (&x)[kRowsAtOnce], int64_t k, int64_t left,
                              float (&sums)[kRowsAtOnce]) {
  float even[kRowsAtOnce] = {}, odd[kRowsAtOnce] = {};
  for (int q = 0; q < 4; ++q)
    for (int i = 0; i < kUnit; i += 2) {
      const int64_t at = q * kUnit + i;
      const float w0 = W::widen(units[q * kPanel * kUnit + i]), w1 = W::widen(units[q * kPanel * kUnit + i + 1]);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        even[r] = V::fma(at < left ? W::input(x[r][k + at]) : 0.0f, w0, even[r]);
        odd[r] = V::fma(at + 1 < left ? W::input(x[r][k + at + 1]) : 0.0f, w1, odd[r]);
      }
    }
  for (int r = 0; r < kRowsAtOnce; ++r) sums[r] = even[r] + odd[r];
}

template <class W>
OCTAVO_GPU_FN void linear_dense(const Step& step, const LinearArgs& a) {
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const typename W::X* x[kRowsAtOnce];
  for (int r = 0; r < kRowsAtOnce; ++r) x[r] = static_cast<const typename W::X*>(a.x) + tile.row(r) * a.ldx;
  const int64_t records = ceil_div(a.k, kDenseRecord);
  const auto* panel = static_cast<const typename W::T*>(a.weight) + tile.panel * records * kDenseRecord * kPanel;
  float acc[kRowsAtOnce] = {};
  for (int64_t first = 0; first < records; first += kParts) {
    const int64_t record = first + tile.part;
    float sums[kRowsAtOnce] = {};
    if (record < records) {
      const int64_t k = record * kDenseRecord;
      block_sums<W>(panel + record * kDenseRecord * kPanel + tile.out * kUnit, x, k, a.k - k, sums);
    }
    for (int part = 0; part < kParts && first + part < records; ++part)
      for (int r = 0; r < kRowsAtOnce; ++r) acc[r] = acc[r] + shuffle(sums[r], part * kPanel + tile.out);
  }
  tile.write(a, acc);
}

// -- integers ------------------------------------------------------------------------------------------------------------
// Products of this lane's units of group g of a record with a row's codes, over the units q = part, part + kParts, ...
template <class Codes>
struct Record {
  int32_t w[4 / kParts][4][2];
  OCTAVO_GPU_FN Record(const uint8_t* record, int part, int out) {
    for (int i = 0; i < 4 / kParts; ++i) {
      const auto raw = Codes::fetch(record, part + i * kParts, out);
      for (int g = 0; g < 4; ++g) Codes::group(raw, g, w[i][g]);
    }
  }
  // The unit i of group g with its inputs' codes.
  OCTAVO_GPU_FN int32_t dot(int i, int g, const int8_t* codes) const {
    const auto* x = reinterpret_cast<const int32_t*>(codes);
    return dot4(w[i][g][1], x[1], dot4(w[i][g][0], x[0], 0));
  }
  // The same with `codes` of the group's first input.
  OCTAVO_GPU_FN int32_t unit(int i, int g, const int8_t* codes, int part) const {
    return dot(i, g, codes + (part + i * kParts) * kUnit);
  }
  OCTAVO_GPU_FN int32_t group(int g, const int8_t* codes, int part) const {
    int32_t sum = 0;
    for (int i = 0; i < 4 / kParts; ++i) sum += unit(i, g, codes, part);
    return sum;
  }
};

OCTAVO_GPU_FN const int8_t* codes_of_row(const LinearArgs& a, int64_t row) { return static_cast<const int8_t*>(a.x) + row * a.ldx; }

// Groups of 32 with float16 scales and, perhaps, minima.
template <class Codes>
OCTAVO_GPU_FN void linear_g32(const Step& step, const LinearArgs& a) {
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const Layout<Codes> lay(a.n, a.k, 32);
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight);
  const auto* d = reinterpret_cast<const uint16_t*>(weight + lay.scales());
  const auto* m = d + lay.entries();
  const int32_t zero = a.flags & kZero8 ? 8 : 0;
  float acc[kRowsAtOnce] = {};
  for (int64_t rec = 0; rec < lay.records; ++rec) {
    const Record<Codes> record(weight + lay.panel(tile.panel) + rec * Codes::kRecordBytes, tile.part, tile.out);
    for (int i = 0; i < 4; ++i) {
      const int64_t g = 4 * rec + i;
      if (g >= lay.groups) break;
      const int64_t entry = lay.entry(tile.panel, g, tile.out);
      const float scale = vec::float_of_f16(d[entry]), low = a.flags & kHasMin ? vec::float_of_f16(m[entry]) : 0.0f;
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const int64_t row = tile.row(r), at = row * a.lds + g;
        const int32_t sum = sum_parts(record.group(i, codes_of_row(a, row) + g * 32, tile.part));
        const float s = a.scales[at];
        acc[r] = V::fma(static_cast<float>(sum - zero * a.sums[at]), s * scale, acc[r]);
        if (a.flags & kHasMin) acc[r] = V::fma(static_cast<float>(a.sums[at]), s * low, acc[r]);
      }
    }
  }
  tile.write(a, acc);
}

// Super-blocks of 256 with integer sub-scales, and perhaps sub-minima, of `group` inputs each.
template <class Codes, int group, bool has_min>
OCTAVO_GPU_FN void linear_k256(const Step& step, const LinearArgs& a) {
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const Layout<Codes> lay(a.n, a.k, 256);
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight);
  const auto* d = reinterpret_cast<const uint16_t*>(weight + lay.scales());
  const auto* subs = reinterpret_cast<const int8_t*>(d + 2 * lay.entries());
  const auto* mins = reinterpret_cast<const uint8_t*>(subs) + 16 * lay.entries();
  float acc[kRowsAtOnce] = {};
  for (int64_t g = 0; g < lay.groups; ++g) {
    const int64_t entry = lay.entry(tile.panel, g, tile.out);
    int32_t sum[kRowsAtOnce] = {}, low[kRowsAtOnce] = {};
    for (int half = 0; half < 2; ++half) {
      const Record<Codes> record(weight + lay.panel(tile.panel) + (2 * g + half) * Codes::kRecordBytes, tile.part, tile.out);
      for (int i = 0; i < 4; ++i)
        for (int u = 0; u < 4 / kParts; ++u) {
          const int at = 128 * half + 32 * i + (tile.part + u * kParts) * kUnit;
          const int32_t sub = subs[entry * 16 + at / group];
          for (int r = 0; r < kRowsAtOnce; ++r)
            sum[r] += sub * record.unit(u, i, codes_of_row(a, tile.row(r)) + g * 256 + 128 * half + 32 * i, tile.part);
        }
    }
    if (has_min)
      for (int s = tile.part; s < 16; s += kParts)
        for (int r = 0; r < kRowsAtOnce; ++r)
          low[r] += mins[entry * 16 + s * 16 / group] * a.sums[(tile.row(r) * a.lds + g) * 16 + s];
    const float scale = vec::float_of_f16(d[entry]), dmin = has_min ? vec::float_of_f16(d[lay.entries() + entry]) : 0.0f;
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const float s = a.scales[tile.row(r) * a.lds + g];
      acc[r] = V::fma(static_cast<float>(sum_parts(sum[r])), s * scale, acc[r]);
      if (has_min) acc[r] = V::fma(static_cast<float>(sum_parts(low[r])), -(s * dmin), acc[r]);
    }
  }
  tile.write(a, acc);
}

// Four bits, a float32 scale and a zero point per group of 32, 64 or 128 inputs; the last group may be short.
OCTAVO_GPU_FN void linear_i4(const Step& step, const LinearArgs& a) {
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const int64_t group = apart_group(a.flags);
  const Layout<Codes4> lay(a.n, a.k, group);
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight);
  const auto* scales = reinterpret_cast<const float*>(weight + lay.scales());
  const auto* zeros = reinterpret_cast<const uint8_t*>(scales + lay.entries());
  float acc[kRowsAtOnce] = {};
  int32_t sum[kRowsAtOnce] = {};
  for (int64_t rec = 0; rec < lay.records; ++rec) {
    const Record<Codes4> record(weight + lay.panel(tile.panel) + rec * Codes4::kRecordBytes, tile.part, tile.out);
    for (int i = 0; i < 4; ++i) {
      const int64_t k = rec * 128 + 32 * i, g = k / group;
      if (k >= round_up(a.k, group)) break;
      for (int r = 0; r < kRowsAtOnce; ++r) sum[r] += record.group(i, codes_of_row(a, tile.row(r)) + k, tile.part);
      if ((k + 32) % group) continue;
      const int64_t entry = lay.entry(tile.panel, g, tile.out);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const int64_t at = tile.row(r) * a.lds + g;
        const int32_t whole = sum_parts(sum[r]) - static_cast<int32_t>(zeros[entry]) * a.sums[at];
        acc[r] = V::fma(static_cast<float>(whole), a.scales[at] * scales[entry], acc[r]);
        sum[r] = 0;
      }
    }
  }
  tile.write(a, acc);
}

// int8 with one scale per output: one exact sum, two products.
OCTAVO_GPU_FN void linear_w8a8(const Step& step, const LinearArgs& a) {
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const Layout<Runs8> lay(a.n, a.k, a.k);
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight);
  int32_t sum[kRowsAtOnce] = {};
  for (int64_t rec = 0; rec < lay.records; ++rec) {
    const Record<Runs8> record(weight + lay.panel(tile.panel) + rec * Runs8::kRecordBytes, tile.part, tile.out);
    for (int g = 0; g < 4; ++g) {
      if (rec * 128 + g / 2 * 64 >= a.k) break;
      for (int u = 0; u < 4 / kParts; ++u) {
        const int64_t k = rec * 128 + Runs8::input_of(tile.part + u * kParts, g);
        for (int r = 0; r < kRowsAtOnce; ++r) sum[r] += record.dot(u, g, codes_of_row(a, tile.row(r)) + k);
      }
    }
  }
  const float scale = reinterpret_cast<const float*>(weight + lay.scales())[lay.entry(tile.panel, 0, tile.out)];
  float acc[kRowsAtOnce];
  for (int r = 0; r < kRowsAtOnce; ++r)
    acc[r] = static_cast<float>(sum_parts(sum[r])) * (a.scales[tile.row(r) * a.lds] * scale);
  tile.write(a, acc);
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR(kind, ...)                                                                                       \
  OCTAVO_KERNEL(linear_##kind, simt, Linear, octavo::gpu::kLinearThreads, octavo::gpu::kRowsAtOnce, 16 * octavo::gpu::kLinearWaves) { \
    octavo::gpu::__VA_ARGS__(*step_, a);                                                                               \
  }
OCTAVO_LINEAR(f32, linear_dense<octavo::gpu::WeightF32>)
OCTAVO_LINEAR(f16, linear_dense<octavo::gpu::WeightF16>)
OCTAVO_LINEAR(bf16, linear_dense<octavo::gpu::WeightBF16>)
OCTAVO_LINEAR(q4g32, linear_g32<octavo::gpu::Codes4>)
OCTAVO_LINEAR(q5g32, linear_g32<octavo::gpu::Codes8>)
OCTAVO_LINEAR(q8g32, linear_g32<octavo::gpu::Codes8>)
OCTAVO_LINEAR(q2k, linear_k256<octavo::gpu::Codes4, 16, true>)
OCTAVO_LINEAR(q3k, linear_k256<octavo::gpu::Codes8, 16, false>)
OCTAVO_LINEAR(q4k, linear_k256<octavo::gpu::Codes4, 32, true>)
OCTAVO_LINEAR(q5k, linear_k256<octavo::gpu::Codes8, 32, true>)
OCTAVO_LINEAR(q6k, linear_k256<octavo::gpu::Codes8, 16, false>)
OCTAVO_LINEAR(w8a8, linear_w8a8)
OCTAVO_LINEAR(i4, linear_i4)
