// Integer formats with a scale per group of 32, 64 or 128 inputs by float16 inputs (prepare_f16row) on float16 matrix units: levels
// mmafast and mmafastwide. Codes less their zero points are exact as float16, and a group's scale meets the product of the group as
// float32, so that no weight is rounded: multiplying it into the weights instead would round each to 11 bits, for more instructions.
// Float16 and not bfloat16, because inputs then keep 11 bits instead of 8, and because there are instructions for pairs of them.
//
//   few   a block computes one panel of 16 outputs for 16 rows; its four waves take records (128 inputs) in turn, with those of
//         kAhead rounds and the inputs of the next on their way, and add what they have in order.
//   wide  a wave computes kHalvesPanels panels x kHalvesTiles tiles of 16 rows in registers; inputs come through shared memory.
#pragma once

#include "gpu/halves.h"
#include "gpu/mma_inputs.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// Four bits, a float32 scale and a zero point per group of 32 * `per_of` inputs; the last group may be short.
template <int per_of>
struct HalvesI4 {
  using Codes = Codes4;
  static constexpr int per = per_of;
  Layout<Codes> lay;
  const float* scales;
  const uint8_t* zeros;
  OCTAVO_GPU_FN explicit HalvesI4(const LinearArgs& a)
      : lay(a.n, a.k, 32 * per), scales(reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + lay.scales())),
        zeros(reinterpret_cast<const uint8_t*>(scales + lay.entries())) {}
  OCTAVO_GPU_FN int32_t minus(int64_t entry) const { return halves_of_zero(zeros[entry]); }
  OCTAVO_GPU_FN float scale(int64_t entry) const { return scales[entry]; }
};

// Group `i` of a record: the entry of output 0 of a panel. Groups beyond the last meet inputs that are zero.
template <class Format>
OCTAVO_GPU_FN int64_t entry_of(const Format& format, int64_t panel, int64_t record, int i) {
  const int64_t g = record * (4 / Format::per) + i, groups = format.lay.groups;
  return (panel * groups + (g < groups ? g : groups - 1)) * kPanel;
}

// What the groups of a record have beside their codes, as a lane needs it: zero points of the outputs that it loads, and scales of
// those that it has results of.
template <class Format>
struct HalvesZeros {
  int32_t minus[4 / Format::per][kUnits];
  OCTAVO_GPU_FN void fetch(const Format& format, int64_t panel, int64_t record) {
    for (int i = 0; i < 4 / Format::per; ++i)
      for (int u = 0; u < kUnits; ++u) minus[i][u] = format.minus(entry_of(format, panel, record, i) + unit_row(u));
  }
  OCTAVO_GPU_FN void weights(OperandF16& to, const RecordUnits<typename Format::Codes>& codes, int step) const {
    for (int u = 0; u < kUnits; ++u) halves_of_codes(codes.raw[u], step, minus[step / Format::per][u], to.w[u]);
  }
};

template <class Format>
struct HalvesScales {
  float of[4 / Format::per][kValues];
  OCTAVO_GPU_FN void fetch(const Format& format, int64_t panel, int64_t record) {
    for (int i = 0; i < 4 / Format::per; ++i)
      for (int v = 0; v < kValues; ++v) of[i][v] = format.scale(entry_of(format, panel, record, i) + row_of_a(v));
  }
};

template <class Format>
OCTAVO_GPU_FN const uint8_t* record_of(const LinearArgs& a, const Format& format, int64_t panel, int64_t record) {
  return static_cast<const uint8_t*>(a.weight) + format.lay.panel(panel) + record * Format::Codes::kRecordBytes;
}

// `partial`: kMmaWaves * kTile * (kTile + 1) floats of shared memory.
template <class Format>
OCTAVO_GPU_FN void linear_halves_few(const Step& step, const LinearArgs& a, float* partial) {
  constexpr int kAhead = kUnits > 2 ? 1 : 4 / kUnits;
  const Format format(a);
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  const int64_t records = format.lay.records;
  if (first_row >= rows) return;
  const uint16_t* x[kUnits];
  for (int u = 0; u < kUnits; ++u) {
    const int64_t row = first_row + unit_row(u) < rows ? first_row + unit_row(u) : rows - 1;
    x[u] = static_cast<const uint16_t*>(a.x) + row * a.ldx + unit_q(u) * kUnit;
  }
  const auto fetch_inputs = [&](OperandF16 (&to)[4], int64_t record) {
    for (int g = 0; g < 4; ++g)
      for (int u = 0; u < kUnits; ++u) {
        const Words4 unit = *reinterpret_cast<const Words4*>(x[u] + record * kCodesRecord + 32 * g);
        for (int i = 0; i < 4; ++i) to[g].w[u][i] = unit.w[i];
      }
  };
  RecordUnits<typename Format::Codes> ahead[kAhead];
  constexpr bool kEarly = kUnits <= 2;  // inputs and scales come a round early, where there are registers for them
  HalvesZeros<Format> next_zeros;
  HalvesScales<Format> next_scales;
  OperandF16 next_inputs[4];
  const auto fetch_next = [&](int64_t record) {
    next_zeros.fetch(format, panel, record);
    next_scales.fetch(format, panel, record);
    fetch_inputs(next_inputs, record);
  };
  if (kEarly && wave() < records) fetch_next(wave());
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (wave() + i * kMmaWaves < records) ahead[i].fetch(record_of(a, format, panel, wave() + i * kMmaWaves));
  float acc[kValues] = {};
  for (int64_t first = wave(); first < records; first += kAhead * kMmaWaves) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t record = first + i * kMmaWaves;
      if (record >= records) break;
      if (!kEarly) fetch_next(record);
      const HalvesZeros<Format> zeros = next_zeros;
      const HalvesScales<Format> scales = next_scales;
      const RecordUnits<typename Format::Codes> codes = ahead[i];
      OperandF16 in[4];
      for (int g = 0; g < 4; ++g) in[g] = next_inputs[g];
      if (kEarly && record + kMmaWaves < records) fetch_next(record + kMmaWaves);
      if (record + kAhead * kMmaWaves < records) ahead[i].fetch(record_of(a, format, panel, record + kAhead * kMmaWaves));
      SumsF32 sums;
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        OperandF16 w;
        zeros.weights(w, codes, g);
        mma(sums, w, in[g]);
        if ((g + 1) % Format::per) continue;
        for (int v = 0; v < kValues; ++v) acc[v] = V::fma(sums.v[v], scales.of[g / Format::per][v], acc[v]);
        sums = {};
      }
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
using HalvesStage = UnitStage<kHalvesTiles>;
constexpr int kHalvesOut = kMmaWaves * kStaged<kHalvesTiles>;
constexpr int kHalvesShared = 2 * HalvesStage::kWords > kHalvesOut ? 2 * HalvesStage::kWords : kHalvesOut;

// `shared`: kHalvesShared words of shared memory.
template <class Format>
OCTAVO_GPU_FN void linear_halves_wide(const Step& step, const LinearArgs& a, int32_t* shared) {
  const Format format(a);
  const auto& lay = format.lay;
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * kHalvesPanels;
  const int64_t first_row = static_cast<int64_t>(block_x()) * kHalvesTiles * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  const int64_t stages = 2 * lay.records, steps = 4 * lay.records;
  const auto panel_of = [&](int p) { return first_panel + p < lay.panels ? first_panel + p : lay.panels - 1; };
  float acc[kHalvesPanels][kHalvesTiles][kValues] = {};
  SumsF32 sums[kHalvesPanels][kHalvesTiles];
  HalvesStage inputs;
  if (kSharesInputs) {
    inputs.fetch_steps(a, 2 * a.ldx, first_row, rows, 0, steps);
    inputs.store(shared);
    sync_shared();
  }
  for (int64_t record = 0; record < lay.records; ++record) {
    RecordUnits<typename Format::Codes> codes[kHalvesPanels];
    HalvesZeros<Format> zeros[kHalvesPanels];
    for (int p = 0; p < kHalvesPanels; ++p) {
      codes[p].fetch(record_of(a, format, panel_of(p), record));
      zeros[p].fetch(format, panel_of(p), record);
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const int64_t next = 2 * record + g / 2 + 1;
      if (kSharesInputs && g % 2 == 0 && next < stages) inputs.fetch_steps(a, 2 * a.ldx, first_row, rows, next, steps);
      OperandF16 w[kHalvesPanels];
      for (int p = 0; p < kHalvesPanels; ++p) zeros[p].weights(w[p], codes[p], g);
#pragma unroll
      for (int t = 0; t < kHalvesTiles; ++t) {
        OperandF16 in;
        if constexpr (kSharesInputs) HalvesStage::load(in, shared + g / 2 * HalvesStage::kWords, t, g % 2);
        else load_halves(in, static_cast<const uint16_t*>(a.x) + record * kCodesRecord + 32 * g, a.ldx, first_row + t * kTile, rows);
        for (int p = 0; p < kHalvesPanels; ++p) mma(sums[p][t], w[p], in);
      }
      if (!kSharesInputs) keep_order();  // inputs of all steps at once take too many registers
      if (kSharesInputs && g % 2 == 1) {
        if (next < stages) inputs.store(shared + (1 - g / 2) * HalvesStage::kWords);
        sync_shared();
      }
      if ((g + 1) % Format::per) continue;
#pragma unroll
      for (int p = 0; p < kHalvesPanels; ++p)
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          const float scale = format.scale(entry_of(format, panel_of(p), record, g / Format::per) + row_of_a(v));
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
    finish_panel(a, reinterpret_cast<float*>(shared) + wave() * kStaged<kHalvesTiles>, acc[p], first_panel + p, first_row, rows);
  }
}

// Groups have their size at compile time: a record then has as many scales as it needs.
OCTAVO_GPU_FN void linear_i4_few(const Step& step, const LinearArgs& a) {
  OCTAVO_SHARED(float, partial, kMmaWaves * kTile * (kTile + 1));
  switch (apart_group(a.flags)) {
    case 32: return linear_halves_few<HalvesI4<1>>(step, a, partial);
    case 64: return linear_halves_few<HalvesI4<2>>(step, a, partial);
    default: return linear_halves_few<HalvesI4<4>>(step, a, partial);
  }
}
OCTAVO_GPU_FN void linear_i4_wide(const Step& step, const LinearArgs& a) {
  OCTAVO_SHARED(Words4, units, kHalvesShared / 4);
  int32_t* const shared = units[0].w;
  switch (apart_group(a.flags)) {
    case 32: return linear_halves_wide<HalvesI4<1>>(step, a, shared);
    case 64: return linear_halves_wide<HalvesI4<2>>(step, a, shared);
    default: return linear_halves_wide<HalvesI4<4>>(step, a, shared);
  }
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(linear_i4, mmafast, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {
  octavo::gpu::linear_i4_few(*step_, a);
}
OCTAVO_KERNEL(linear_i4, mmafastwide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kHalvesTiles * octavo::gpu::kTile,
              octavo::gpu::kMmaWaves * octavo::gpu::kHalvesPanels * octavo::gpu::kPanel) {
  octavo::gpu::linear_i4_wide(*step_, a);
}

#endif
