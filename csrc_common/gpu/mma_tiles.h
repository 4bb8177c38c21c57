// Sizes that products on matrix units share: blocks of four waves, tiles of 16 rows.
#pragma once

#include "gpu/mma.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kMmaWaves = 4, kMmaThreads = kMmaWaves * kWave, kTile = 16;

// 32 int8 inputs of the 16 rows from `first_row` on, from input `k` on; missing rows are the last one.
OCTAVO_GPU_FN void load_rows(OperandI8& to, const void* x, int64_t ldx, int64_t first_row, int64_t rows, int64_t k) {
  load_operand(to, [&](int row, int q) {
    const int64_t at = first_row + row < rows ? first_row + row : rows - 1;
    return static_cast<const int8_t*>(x) + at * ldx + k + q * kUnit;
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

}  // namespace octavo::gpu

#endif
