// Sizes that products on matrix units share: blocks of four waves, tiles of 16 rows; and how a wave ends.
#pragma once

#include "gpu/epilogue.inl.h"
#include "gpu/mma.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kMmaWaves = 4, kMmaThreads = kMmaWaves * kWave, kTile = 16;

// vec::float_of_f16 by the instruction; not on RDNA 3, where clang 22 then loads so much ahead that K-quants spill.
OCTAVO_GPU_FN float float_of_half(uint16_t half) {
#if defined(__HIP__) && !defined(__GFX11__)
  return static_cast<float>(__builtin_bit_cast(_Float16, half));
#elif defined(__CUDACC__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  return vec::float_of_f16(half);
#endif
}

// 32 int8 inputs of the 16 rows from `first_row` on, from input `k` on; missing rows are the last one.
OCTAVO_GPU_FN void load_rows(OperandI8& to, const void* x, int64_t ldx, int64_t first_row, int64_t rows, int64_t k) {
  load_operand(to, [&](int row, int q) {
    const int64_t at = first_row + row < rows ? first_row + row : rows - 1;
    return static_cast<const int8_t*>(x) + at * ldx + k + q * kUnit;
  });
}

// 32 float16 inputs of the 16 rows from `first_row` on; `x`: those of row 0.
OCTAVO_GPU_FN void load_halves(OperandF16& to, const uint16_t* x, int64_t ldx, int64_t first_row, int64_t rows) {
  load_operand(to, [&](int row, int q) {
    const int64_t at = first_row + row < rows ? first_row + row : rows - 1;
    return x + at * ldx + q * kUnit;
  });
}

// A lane's units of a record of codes (gpu/packed.h), as they lie.
template <class Codes>
struct RecordUnits {
  typename Codes::Raw raw[kUnits];
  OCTAVO_GPU_FN void fetch(const uint8_t* record) {
    for (int u = 0; u < kUnits; ++u) raw[u] = Codes::fetch(record, unit_q(u), unit_row(u));
  }
  OCTAVO_GPU_FN void group(OperandI8& to, int g) const {
    for (int u = 0; u < kUnits; ++u) Codes::group(raw[u], g, to.w[u]);
  }
};

// A wave's sums of one panel -> y, through `staged` in shared memory, which is the wave's own: sums must have fixed places in
// registers, and what follows a product is long.
template <int tiles>
constexpr int kStaged = tiles * kTile * (kPanel + 1);
template <int tiles>
OCTAVO_GPU_FN void finish_panel(const LinearArgs& a, float* staged, const float (&sums)[tiles][kValues], int64_t panel,
                                int64_t first_row, int64_t rows) {
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int v = 0; v < kValues; ++v) staged[(t * kTile + row_of_b(v)) * (kPanel + 1) + row_of_a(v)] = sums[t][v];
  sync_wave();
#pragma unroll 1
  for (int at = lane(); at < tiles * kTile * kPanel; at += kWave) {
    const int64_t row = first_row + at / kPanel, out = panel * kPanel + at % kPanel;
    if (row < rows && out < a.n) finish(a, row, out, staged[at / kPanel * (kPanel + 1) + at % kPanel]);
  }
  sync_wave();
}

}  // namespace octavo::gpu

#endif
