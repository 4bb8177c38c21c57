// Integer formats with a scale per group of 32, 64 or 128 inputs by float16 inputs (prepare_f16row) on float16 matrix units: levels
// mmafast and mmafastwide. Codes less their zero points are exact as float16, and a group's scale meets the product of the group as
// float32, so that no weight is rounded: multiplying it into the weights instead would round each to 11 bits, for more instructions.
// Float16 and not bfloat16, because inputs then keep 11 bits instead of 8, and because there are instructions for pairs of them.
//
//   few   a block computes one panel of 16 outputs for 16 rows; its four waves take records (128 inputs) in turn, those of kAhead
//         rounds on their way, and add what they have in order.
//   wide  a wave computes kHalvesPanels panels x kHalvesTiles tiles of 16 rows in registers.
#pragma once

#include "gpu/halves.h"
#include "gpu/mma_tiles.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// Four bits, a float32 scale and a zero point per group; the last group may be short.
struct HalvesI4 {
  using Codes = Codes4;
  int64_t group;
  Layout<Codes> lay;
  const float* scales;
  const uint8_t* zeros;
  OCTAVO_GPU_FN explicit HalvesI4(const LinearArgs& a)
      : group(apart_group(a.flags)), lay(a.n, a.k, group),
        scales(reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + lay.scales())),
        zeros(reinterpret_cast<const uint8_t*>(scales + lay.entries())) {}
  OCTAVO_GPU_FN int steps_of_group() const { return static_cast<int>(group / 32); }
  OCTAVO_GPU_FN int64_t entry(int64_t panel, int64_t g, int out) const { return lay.entry(panel, g < lay.groups ? g : lay.groups - 1, out); }
  OCTAVO_GPU_FN int32_t zero(int64_t panel, int64_t g, int out) const { return halves_of_zero(zeros[entry(panel, g, out)]); }
  OCTAVO_GPU_FN float scale(int64_t panel, int64_t g, int out) const { return scales[entry(panel, g, out)]; }
};

// A record's four steps of 32 inputs of one panel: the lane's codes, and what the groups have beside them.
template <class Format>
struct HalvesRecord {
  RecordUnits<typename Format::Codes> codes;
  int32_t minus[4][kUnits];
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, const Format& format, int64_t panel, int64_t record) {
    codes.fetch(static_cast<const uint8_t*>(a.weight) + format.lay.panel(panel) + record * Format::Codes::kRecordBytes);
    const int per = format.steps_of_group();
    for (int i = 0; i < 4; ++i)
      for (int u = 0; u < kUnits; ++u) minus[i][u] = format.zero(panel, (4 * record + i) / per, unit_row(u));
  }
  OCTAVO_GPU_FN void step(OperandF16& to, int i) const {
    for (int u = 0; u < kUnits; ++u) halves_of_codes(codes.raw[u], i, minus[i][u], to.w[u]);
  }
};

template <class Format>
OCTAVO_GPU_FN void linear_halves_few(const Step& step, const LinearArgs& a) {
  constexpr int kAhead = kUnits > 2 ? 1 : 4 / kUnits;
  OCTAVO_SHARED(float, partial, kMmaWaves * kTile * (kTile + 1));
  const Format format(a);
  const auto& lay = format.lay;
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  const int per = format.steps_of_group();
  const auto* x = static_cast<const uint16_t*>(a.x);
  HalvesRecord<Format> ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (wave() + i * kMmaWaves < lay.records) ahead[i].fetch(a, format, panel, wave() + i * kMmaWaves);
  float acc[kValues] = {};
  for (int64_t first = wave(); first < lay.records; first += kAhead * kMmaWaves) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t record = first + i * kMmaWaves;
      if (record >= lay.records) break;
      OperandF16 in[4];
      for (int g = 0; g < 4; ++g) load_halves(in[g], x + record * kCodesRecord + 32 * g, a.ldx, first_row, rows);
      float scales[4][kValues];
      for (int g = 0; g < 4; ++g)
        for (int v = 0; v < kValues; ++v) scales[g][v] = format.scale(panel, (4 * record + g) / per, row_of_a(v));
      SumsF32 sums;
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        OperandF16 w;
        ahead[i].step(w, g);
        mma(sums, w, in[g]);
        if ((g + 1) % per) continue;
        for (int v = 0; v < kValues; ++v) acc[v] = V::fma(sums.v[v], scales[g][v], acc[v]);
        sums = {};
      }
      if (record + kAhead * kMmaWaves < lay.records) ahead[i].fetch(a, format, panel, record + kAhead * kMmaWaves);
    }
  }
  for (int v = 0; v < kValues; ++v) partial[(wave() * kTile + row_of_b(v)) * (kTile + 1) + row_of_a(v)] = acc[v];
  sync();
  for (int t = thread(); t < kTile * kPanel; t += kMmaThreads) {
    const int64_t row = first_row + t / kTile, out = panel * kPanel + t % kTile;
    if (row >= rows || out >= a.n) continue;
    float sum = 0.0f;
    for (int w = 0; w < kMmaWaves; ++w) sum = sum + partial[(w * kTile + t / kTile) * (kTile + 1) + t % kTile];
    finish(a, row, out, sum * a.scales[row * a.lds]);
  }
}

// Lanes of AMD's matrix cores of wave64 hold 4 values of a product, others 8.
constexpr int kHalvesPanels = 2, kHalvesTiles = kValues == 4 ? 4 : 2;

template <class Format>
OCTAVO_GPU_FN void linear_halves_wide(const Step& step, const LinearArgs& a) {
  OCTAVO_SHARED(float, staged, kMmaWaves * kStaged<kHalvesTiles>);
  const Format format(a);
  const auto& lay = format.lay;
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * kHalvesPanels;
  const int64_t first_row = static_cast<int64_t>(block_x()) * kHalvesTiles * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows || first_panel >= lay.panels) return;
  const int per = format.steps_of_group();
  const auto* x = static_cast<const uint16_t*>(a.x);
  const auto panel_of = [&](int p) { return first_panel + p < lay.panels ? first_panel + p : lay.panels - 1; };
  float acc[kHalvesPanels][kHalvesTiles][kValues] = {};
  SumsF32 sums[kHalvesPanels][kHalvesTiles];
  for (int64_t record = 0; record < lay.records; ++record) {
    HalvesRecord<Format> units[kHalvesPanels];
    for (int p = 0; p < kHalvesPanels; ++p) units[p].fetch(a, format, panel_of(p), record);
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      OperandF16 w[kHalvesPanels];
      for (int p = 0; p < kHalvesPanels; ++p) units[p].step(w[p], g);
#pragma unroll
      for (int t = 0; t < kHalvesTiles; ++t) {
        OperandF16 in;
        load_halves(in, x + record * kCodesRecord + 32 * g, a.ldx, first_row + t * kTile, rows);
        for (int p = 0; p < kHalvesPanels; ++p) mma(sums[p][t], w[p], in);
      }
      if ((g + 1) % per) continue;
#pragma unroll
      for (int p = 0; p < kHalvesPanels; ++p)
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          const float scale = format.scale(panel_of(p), (4 * record + g) / per, row_of_a(v));
#pragma unroll
          for (int t = 0; t < kHalvesTiles; ++t) {
            acc[p][t][v] = V::fma(sums[p][t].v[v], scale, acc[p][t][v]);
            sums[p][t].v[v] = 0.0f;
          }
        }
    }
  }
#pragma unroll
  for (int p = 0; p < kHalvesPanels; ++p) {
#pragma unroll
    for (int t = 0; t < kHalvesTiles; ++t)
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        const int64_t row = first_row + t * kTile + row_of_b(v);
        acc[p][t][v] = acc[p][t][v] * a.scales[(row < rows ? row : rows - 1) * a.lds];
      }
    finish_panel(a, staged + wave() * kStaged<kHalvesTiles>, acc[p], first_panel + p, first_row, rows);
  }
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR_HALVES(kind, ...)                                                                                       \
  OCTAVO_KERNEL(linear_##kind, mmafast, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {         \
    octavo::gpu::linear_halves_few<octavo::gpu::__VA_ARGS__>(*step_, a);                                                     \
  }                                                                                                                          \
  OCTAVO_KERNEL(linear_##kind, mmafastwide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kHalvesTiles * octavo::gpu::kTile, \
                octavo::gpu::kMmaWaves * octavo::gpu::kHalvesPanels * octavo::gpu::kPanel) {                                 \
    octavo::gpu::linear_halves_wide<octavo::gpu::__VA_ARGS__>(*step_, a);                                                    \
  }
OCTAVO_LINEAR_HALVES(i4, HalvesI4)

#endif
