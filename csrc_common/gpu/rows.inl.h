// What row-wise kernels share: who works on which row, the contract's sums over sixteen lanes, and reductions of a group.
//
// Sixteen threads, a group, hold the contract's sixteen virtual lanes (docs/numerics.md, "Sums"): the bits are those of CPUs.
#pragma once

#include "gpu/shim.h"
#include "vec/math.inl.h"

namespace octavo::gpu {

using V = OCTAVO_ISA_NS::vec::F32x1;
namespace vec = OCTAVO_ISA_NS::vec;

constexpr int kGroup = 16;
constexpr int kRowThreads = 256;
constexpr int kGroups = kRowThreads / kGroup;

OCTAVO_GPU_FN int group_lane() { return thread() % kGroup; }
OCTAVO_GPU_FN int group() { return thread() / kGroup; }

// Lanes fold 8, 4, 2, 1 apart; every thread of the group gets the result. Adding is commutative bit for bit, so both partners
// of a pair may add.
OCTAVO_GPU_FN float fold16(float x) {
  for (int half = 8; half > 0; half /= 2) x = x + shuffle_xor(x, half);
  return x;
}
OCTAVO_GPU_FN float max16(float x) {
  for (int half = 8; half > 0; half /= 2) x = V::max(x, shuffle_xor(x, half));
  return x;
}
OCTAVO_GPU_FN int32_t sum16(int32_t x) {
  for (int half = 8; half > 0; half /= 2) x += shuffle_xor(x, half);
  return x;
}

// Sum over a row of fma(f(x), f(x), lane).
template <class F>
OCTAVO_GPU_FN float sum16_squares(int64_t n, F&& value) {
  float sum = 0.0f;
  for (int64_t i = group_lane(); i < n; i += kGroup) {
    const float v = value(i);
    sum = V::fma(v, v, sum);
  }
  return fold16(sum);
}

// Runs `work(row)` with every group of the grid on rows of its own; the threads of a wave stay together, so that `work` may
// shuffle: rows beyond the last are given as the last, with `is_real` false.
template <class F>
OCTAVO_GPU_FN void each_row(int64_t rows, F&& work) {
  if (rows <= 0) return;
  const int64_t step = static_cast<int64_t>(num_blocks_x()) * kGroups;
  for (int64_t first = static_cast<int64_t>(block_x()) * kGroups; first < rows; first += step) {
    const int64_t row = first + group();
    work(row < rows ? row : rows - 1, row < rows);
  }
}

// Runs `work(row, column)` for every element of [rows, width], neighbours by neighbouring threads.
template <class F>
OCTAVO_GPU_FN void each_element(int64_t rows, int64_t width, F&& work) {
  const int64_t wide = round_up(width, kRowThreads) / kRowThreads;
  OCTAVO_EACH(unit, rows * wide) {
    const int64_t column = unit % wide * kRowThreads + thread();
    if (column < width) work(unit / wide, column);
  }
}

}  // namespace octavo::gpu
