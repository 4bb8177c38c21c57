// linear_bf16, linear_f16 and linear_w8a8 on matrix units. Weights are operand A, read as they lie (gpu/packed.h), rows of inputs operand B.
//
//   few   up to 16 rows at a time: a block computes one panel of 16 outputs; its four waves take records in turn and add what they
//         have in order, so that four times as many loads are on their way. Memory's bandwidth is the limit.
//   wide  a wave computes 4 (or 2) panels x 4 (or 2) tiles of 16 rows in registers; the four waves of a block share
//         the rows of inputs, through shared memory.
//
// int8 sums are exact, so w8a8 has the bits of CPUs (levels mma and mmawide). bfloat16 products are added in another order than
// the contract's (levels mmafast and mmafastwide): within the bounds of the case tables, the same in every run; a row's result
// depends on its own inputs and on which of the two kernels ran, not on other rows. Weights of float16 meet float32 inputs as two
// float16 each (prepare_f16pair), 22 bits of them: twice the products, for weights that are read once.
#pragma once

#include "gpu/mma_inputs.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kAhead = 4;  // steps whose loads are on their way together

// How a format goes through matrix units: steps of 32 inputs, in order.
struct MmaBF16 {
  static constexpr int kWideTiles = 4, kWidePanels = kValues == 4 ? 4 : 2;  // lanes of wave32 hold twice as many sums
  using Operand = OperandBF16;
  using Inputs = OperandBF16;
  using Sums = SumsF32;
  const LinearArgs& a;
  int64_t steps;
  OCTAVO_GPU_FN explicit MmaBF16(const LinearArgs& args) : a(args), steps(ceil_div(args.k, kDenseRecord)) {}
  OCTAVO_GPU_FN void weights(Operand& to, int64_t panel, int64_t step) const {
    const auto* record = static_cast<const uint16_t*>(a.weight) + (panel * steps + step) * kDenseRecord * kPanel;
    load_operand(to, [&](int row, int q) { return record + (q * kPanel + row) * kUnit; });
  }
  OCTAVO_GPU_FN void inputs(Operand& to, int64_t first_row, int64_t rows, int64_t step) const {
    load_operand(to, [&](int row, int q) {
      const int64_t at = first_row + row < rows ? first_row + row : rows - 1;
      return static_cast<const uint16_t*>(a.x) + at * a.ldx + step * kDenseRecord + q * kUnit;
    });
  }
  static constexpr int kStageSteps = 2;  // of many rows, whose inputs come through shared memory
  template <class Stage>
  OCTAVO_GPU_FN void fetch(Stage& to, int64_t first_row, int64_t rows, int64_t stage) const {
    to.fetch_steps(a, 2 * a.ldx, first_row, rows, stage, steps);
  }
  OCTAVO_GPU_FN float result(float sum, int64_t, int64_t) const { return sum; }
};

// Inputs as the sum of two.
struct PairF16 {
  OperandF16 high, low;
};
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const PairF16& b) {
  mma(c, a, b.high);
  mma(c, a, b.low);
}

struct MmaF16 {
  static constexpr int kWideTiles = kValues == 4 ? 4 : 2, kWidePanels = 4;
  using Operand = OperandF16;
  using Inputs = PairF16;
  using Sums = SumsF32;
  const LinearArgs& a;
  int64_t steps;
  OCTAVO_GPU_FN explicit MmaF16(const LinearArgs& args) : a(args), steps(ceil_div(args.k, kDenseRecord)) {}
  OCTAVO_GPU_FN void weights(Operand& to, int64_t panel, int64_t step) const {
    const auto* record = static_cast<const uint16_t*>(a.weight) + (panel * steps + step) * kDenseRecord * kPanel;
    load_operand(to, [&](int row, int q) { return record + (q * kPanel + row) * kUnit; });
  }
  OCTAVO_GPU_FN void inputs(Inputs& to, int64_t first_row, int64_t rows, int64_t step) const {
    const auto* x = static_cast<const uint16_t*>(a.x) + step * kDenseRecord;
    load_halves(to.high, x, a.ldx, first_row, rows);
    load_halves(to.low, x + round_up(a.k, kCodesRecord), a.ldx, first_row, rows);
  }
  static constexpr int kStageSteps = 1;  // the high and the low part of it
  template <class Stage>
  OCTAVO_GPU_FN void fetch(Stage& to, int64_t first_row, int64_t rows, int64_t stage) const {
    to.fetch(a, 2 * a.ldx, first_row, rows, 64 * stage, 64 * stage + 2 * round_up(a.k, kCodesRecord));
  }
  OCTAVO_GPU_FN float result(float sum, int64_t row, int64_t) const { return sum * a.scales[row * a.lds]; }
};

struct MmaW8A8 {
  static constexpr int kWideTiles = 4, kWidePanels = kValues == 4 ? 4 : 2;  // lanes of wave32 hold twice as many sums
  using Operand = OperandRuns8;
  using Inputs = OperandRuns8;
  using Sums = SumsI32;
  const LinearArgs& a;
  Layout<Runs8> lay;
  int64_t steps;
  OCTAVO_GPU_FN explicit MmaW8A8(const LinearArgs& args)
      : a(args), lay(args.n, args.k, args.k), steps(ceil_div(args.k, Runs8::kRunInputs)) {}
  static constexpr int kStageSteps = 2;
  template <class Stage>
  OCTAVO_GPU_FN void fetch(Stage& to, int64_t first_row, int64_t rows, int64_t stage) const {
    to.fetch_steps(a, a.ldx, first_row, rows, stage, steps);
  }
  OCTAVO_GPU_FN void weights(Operand& to, int64_t panel, int64_t step) const {
    const auto* record = static_cast<const uint8_t*>(a.weight) + lay.panel(panel) + step * Runs8::kRunBytes;
    load_operand(to, [&](int row, int q) { return record + (q * kPanel + row) * 16; });
  }
  OCTAVO_GPU_FN void inputs(Operand& to, int64_t first_row, int64_t rows, int64_t step) const {
    load_operand(to, [&](int row, int q) {
      const int64_t at = first_row + row < rows ? first_row + row : rows - 1;
      return static_cast<const int8_t*>(a.x) + at * a.ldx + step * Runs8::kRunInputs + q * 16;
    });
  }
  OCTAVO_GPU_FN float result(int32_t sum, int64_t row, int64_t out) const {
    const float scale = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + lay.scales())[out];
    return static_cast<float>(sum) * (a.scales[row * a.lds] * scale);
  }
};

template <class Format>
OCTAVO_GPU_FN void linear_few(const Step& step, const LinearArgs& a) {
  using Word = decltype(typename Format::Sums{}.v[0] + typename Format::Sums{}.v[0]);
  OCTAVO_SHARED(Word, partial, kMmaWaves * kTile * (kTile + 1));
  const Format format(a);
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  typename Format::Sums sums;
  int64_t s = wave();
  for (; s + (kAhead - 1) * kMmaWaves < format.steps; s += kAhead * kMmaWaves) {
    typename Format::Operand w[kAhead];
    typename Format::Inputs x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) format.weights(w[i], panel, s + i * kMmaWaves);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) format.inputs(x[i], first_row, rows, s + i * kMmaWaves);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) mma(sums, w[i], x[i]);
  }
  for (; s < format.steps; s += kMmaWaves) {
    typename Format::Operand w;
    typename Format::Inputs x;
    format.weights(w, panel, s);
    format.inputs(x, first_row, rows, s);
    mma(sums, w, x);
  }
  for (int i = 0; i < kValues; ++i) partial[(wave() * kTile + row_of_b(i)) * (kTile + 1) + row_of_a(i)] = sums.v[i];
  sync();
  for (int t = thread(); t < kTile * kTile; t += kMmaThreads) {
    const int64_t row = first_row + t / kTile, out = panel * kPanel + t % kTile;
    Word sum = partial[t / kTile * (kTile + 1) + t % kTile];
    for (int w = 1; w < kMmaWaves; ++w) sum = sum + partial[(w * kTile + t / kTile) * (kTile + 1) + t % kTile];
    if (row < rows && out < a.n) finish(a, row, out, format.result(sum, row, out));
  }
}

// Step `at` of a stage, of one tile of rows.
template <class Stage, class Operand>
OCTAVO_GPU_FN void load_inputs(Operand& to, const int32_t* stage, int tile, int at) {
  Stage::load(to, stage, tile, at);
}
template <class Stage>
OCTAVO_GPU_FN void load_inputs(PairF16& to, const int32_t* stage, int tile, int) {
  Stage::load(to.high, stage, tile, 0);
  Stage::load(to.low, stage, tile, 1);
}

// A step of all panels and tiles of a wave; of inputs it is step `at` of a stage.
template <class Stage, class Format>
OCTAVO_GPU_FN void take_step(typename Format::Sums (&sums)[Format::kWidePanels][Format::kWideTiles], const Format& format,
                             int64_t first_panel, int64_t panels, int64_t step, const int32_t* stage, int at) {
  typename Format::Operand w[Format::kWidePanels];
  typename Format::Inputs x[Format::kWideTiles];
#pragma unroll
  for (int p = 0; p < Format::kWidePanels; ++p) format.weights(w[p], first_panel + p < panels ? first_panel + p : panels - 1, step);
#pragma unroll
  for (int t = 0; t < Format::kWideTiles; ++t) load_inputs<Stage>(x[t], stage, t, at);
#pragma unroll
  for (int p = 0; p < Format::kWidePanels; ++p)
#pragma unroll
    for (int t = 0; t < Format::kWideTiles; ++t) mma(sums[p][t], w[p], x[t]);
}

template <class Format>
OCTAVO_GPU_FN void linear_wide(const Step& step, const LinearArgs& a) {
  constexpr int kWideTiles = Format::kWideTiles, kWidePanels = Format::kWidePanels, kSteps = Format::kStageSteps;
  using Word = decltype(typename Format::Sums{}.v[0] + typename Format::Sums{}.v[0]);
  using Stage = UnitStage<kWideTiles>;
  constexpr int kStages = 2 * Stage::kWords, kOut = kMmaWaves * kStaged<kWideTiles>;
  OCTAVO_SHARED(Words4, shared_units, (kStages > kOut ? kStages : kOut) / 4);
  int32_t* const shared = shared_units[0].w;
  const Format format(a);
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * kWidePanels;
  const int64_t first_row = static_cast<int64_t>(block_x()) * kWideTiles * kTile, rows = num_rows(a.rows, step);
  const int64_t panels = ceil_div(a.n, kPanel);
  if (first_row >= rows) return;
  typename Format::Sums sums[kWidePanels][kWideTiles];
  Stage inputs;
  format.fetch(inputs, first_row, rows, 0);
  inputs.store(shared);
  sync_shared();
  for (int64_t stage = 0; kSteps * stage < format.steps; ++stage) {
    const bool is_more = kSteps * (stage + 1) < format.steps;
    if (is_more) format.fetch(inputs, first_row, rows, stage + 1);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (kSteps * stage + i >= format.steps) break;
      take_step<Stage>(sums, format, first_panel, panels, kSteps * stage + i, shared + stage % 2 * Stage::kWords, i);
    }
    if (is_more) inputs.store(shared + (stage + 1) % 2 * Stage::kWords);
    sync_shared();
  }
  // Panel by panel through shared memory: sums must have fixed places in registers, and what follows a product is long.
  Word* mine = reinterpret_cast<Word*>(shared) + wave() * kStaged<kWideTiles>;
#pragma unroll
  for (int p = 0; p < kWidePanels; ++p) {
#pragma unroll
    for (int t = 0; t < kWideTiles; ++t)
#pragma unroll
      for (int i = 0; i < kValues; ++i) mine[(t * kTile + row_of_b(i)) * (kPanel + 1) + row_of_a(i)] = sums[p][t].v[i];
    sync_wave();
#pragma unroll 1
    for (int at = lane(); at < kWideTiles * kTile * kPanel; at += kWave) {
      const int64_t row = first_row + at / kPanel, out = (first_panel + p) * kPanel + at % kPanel;
      if (row < rows && out < a.n) finish(a, row, out, format.result(mine[at / kPanel * (kPanel + 1) + at % kPanel], row, out));
    }
    sync_wave();
  }
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR_MMA(kind, level, Format)                                                                       \
  OCTAVO_KERNEL(linear_##kind, level, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {   \
    octavo::gpu::linear_few<octavo::gpu::Format>(*step_, a);                                                         \
  }                                                                                                                  \
  OCTAVO_KERNEL(linear_##kind, level##wide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::Format::kWideTiles * octavo::gpu::kTile, \
                octavo::gpu::kMmaWaves * octavo::gpu::Format::kWidePanels * octavo::gpu::kPanel) {                           \
    octavo::gpu::linear_wide<octavo::gpu::Format>(*step_, a);                                                        \
  }
OCTAVO_LINEAR_MMA(bf16, mmafast, MmaBF16)
OCTAVO_LINEAR_MMA(f16, mmafast, MmaF16)
OCTAVO_LINEAR_MMA(w8a8, mma, MmaW8A8)

#endif
