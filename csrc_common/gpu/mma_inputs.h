// Rows of inputs in shared memory, 128 bytes of each at a time, for the waves of a block that compute other outputs of the
// same rows: read from memory once, in whole lines, and again by nobody. While waves work on one stage, the next is on its way to
// registers, and then goes to the other of two buffers: one barrier a stage.
//
// Units of 8 int8 inputs lie in pairs, those of groups of 32 inputs g and g + 1: [tile of 16 rows][g / 2][q][row][g % 2]. The place of
// a row among 16 is turned by q and g / 2, so that neither those who store a row's 128 bytes nor those who read 16 rows of one
// q meet in a bank.
#pragma once

#include "gpu/mma_tiles.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kStageInputs = kCodesRecord;
// Where codes are long in registers before they are multiplied, RDNA 3 has none to spare for what is on its way.
constexpr bool kSharesInputs = kUnits < 4;

template <int tiles>
struct InputStage {
  static constexpr int kRows = tiles * kTile, kWords = kRows * kStageInputs / 4;  // words of shared memory
  static constexpr int kEach = kRows * kStageInputs / 16 / kMmaThreads;           // 16 bytes of a thread
  static_assert(kEach * 16 * kMmaThreads == kRows * kStageInputs);
  Words4 held[kEach];

  static OCTAVO_GPU_FN int place(int row, int pair, int q) {  // in words
    return (((row / kTile * 2 + pair) * 4 + q) * kTile + (row % kTile ^ 2 * (q ^ pair))) * 4;
  }
  // Inputs 128 stage .. of rows; behind the last step of 32, and the last row, it is the last.
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, int64_t first_row, int64_t rows, int64_t stage, int64_t steps) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads, row = at / 8, part = at % 8;
      const int64_t of = first_row + row < rows ? first_row + row : rows - 1, step = 4 * stage + part / 2;
      held[i] = *reinterpret_cast<const Words4*>(static_cast<const int8_t*>(a.x) + of * a.ldx +
                                                 32 * (step < steps ? step : steps - 1) + 16 * (part % 2));
    }
  }
  OCTAVO_GPU_FN void store(int32_t* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads, row = at / 8, part = at % 8;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<Words2*>(shared + place(row, part / 4, part % 2 * 2 + half) + part / 2 % 2 * 2) =
            Words2{{held[i].w[2 * half], held[i].w[2 * half + 1]}};
    }
  }
  // Operands of a group and, where two are asked for, of the next: groups 2 i and 2 i + 1.
  static OCTAVO_GPU_FN void load(OperandI8 (&to)[2], const int32_t* shared, int tile, int group) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const Words4 both = *reinterpret_cast<const Words4*>(shared + place(tile * kTile + unit_row(u), group / 2, unit_q(u)));
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i / 2].w[u][i % 2] = both.w[i];
    }
  }
  static OCTAVO_GPU_FN void load(OperandI8 (&to)[1], const int32_t* shared, int tile, int group) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int32_t* from = shared + place(tile * kTile + unit_row(u), group / 2, unit_q(u)) + group % 2 * 2;
      const Words2 one = *reinterpret_cast<const Words2*>(from);
#pragma unroll
      for (int i = 0; i < 2; ++i) to[0].w[u][i] = one.w[i];
    }
  }
};

// The same for operands with units of 16 bytes (bfloat16, runs of int8): a stage is two parts of 64 bytes of every row, mostly two
// steps that follow each other.
template <int tiles>
struct UnitStage {
  static constexpr int kSteps = 2, kRows = tiles * kTile, kWords = kRows * kSteps * 16;
  static constexpr int kEach = kRows * kSteps * 4 / kMmaThreads;
  static_assert(kEach * kMmaThreads == kRows * kSteps * 4);
  Words4 held[kEach];

  static OCTAVO_GPU_FN int place(int row, int step, int q) {  // in words
    return (((row / kTile * kSteps + step) * 4 + q) * kTile + (row % kTile ^ (2 * q ^ step))) * 4;
  }
  // The parts that begin `first` and `second` bytes into every row; of missing rows those of the last.
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, int64_t row_bytes, int64_t first_row, int64_t rows, int64_t first, int64_t second) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads, row = at / 8, part = at % 8;
      const int64_t of = first_row + row < rows ? first_row + row : rows - 1;
      held[i] = *reinterpret_cast<const Words4*>(static_cast<const uint8_t*>(a.x) + of * row_bytes + (part < 4 ? first : second) +
                                                 16 * (part % 4));
    }
  }
  // Two steps; behind the last it is the last.
  OCTAVO_GPU_FN void fetch_steps(const LinearArgs& a, int64_t row_bytes, int64_t first_row, int64_t rows, int64_t stage, int64_t steps) {
    const int64_t step = kSteps * stage;
    fetch(a, row_bytes, first_row, rows, 64 * step, 64 * (step + 1 < steps ? step + 1 : step));
  }
  OCTAVO_GPU_FN void store(int32_t* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads;
      const Words4 unit = {{held[i].w[0], held[i].w[1], held[i].w[2], held[i].w[3]}};  // word by word: whole, it goes by scratch memory
      *reinterpret_cast<Words4*>(shared + place(at / 8, at % 8 / 4, at % 4)) = unit;
    }
  }
  template <class Operand>
  static OCTAVO_GPU_FN void load(Operand& to, const int32_t* shared, int tile, int step) {
    load_operand(to, [&](int row, int q) { return shared + place(tile * kTile + row, step, q); });
  }
};

// What rows have of a stage's groups beside their codes: [row][group]{scale, sum}.
template <int tiles>
struct SideStage {
  static constexpr int kRows = tiles * kTile, kWords = kRows * 8;
  static constexpr int kEach = kRows * 4 / kMmaThreads;
  float scale[kEach];
  int32_t sum[kEach];
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads;
      const int64_t of = first_row + at / 4 < rows ? first_row + at / 4 : rows - 1, g = first_group + at % 4;
      scale[i] = a.scales[of * a.lds + (g < groups ? g : groups - 1)];
      sum[i] = a.sums[of * a.lds + (g < groups ? g : groups - 1)];
    }
  }
  OCTAVO_GPU_FN void store(int32_t* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      *reinterpret_cast<Words2*>(shared + 2 * (thread() + i * kMmaThreads)) = Words2{{word_of_float(scale[i]), sum[i]}};
  }
  static OCTAVO_GPU_FN void load(float& scale, int32_t& sum, const int32_t* shared, int row, int group) {
    const Words2 both = *reinterpret_cast<const Words2*>(shared + 2 * (row * 4 + group));
    scale = float_of_word(both.w[0]), sum = both.w[1];
  }
};

}  // namespace octavo::gpu

#endif
