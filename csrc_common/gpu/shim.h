// What a GPU kernel may use, the same on AMD, on NVIDIA and on the host that stands in for one: threads of a block, barriers,
// shuffles within a wave, memory of a block and atomic sums there, dot products of bytes. Everything else is plain C++.
//
// A kernel is declared by OCTAVO_KERNEL(op, level, Name, threads, tile_rows, tile_outs): blocks of `threads`, the arguments of
// csrc_common/contract, and the rows and outputs that one block computes, which the launcher forms the grid from. OCTAVO_WAVES(n)
// behind them: no more registers than let n waves of a SIMD (AMD) take turns (OCTAVO_TWO_WAVES: two). Its name is
// <op>__<level>, as on CPUs; an op whose name ends in _d<N> serves heads of up to N dimensions (platforms/gpu/rows.py). On the host the same line also enters a row into the list of kernels (gpu/host.h), from which the
// build writes the table that travels with the code objects.
//
// Float arithmetic is that of docs/numerics.md: no contraction, IEEE division and square root, denormals flushed.
#pragma once

#if !defined(OCTAVO_GPU)
#error "compile GPU kernels with -DOCTAVO_GPU"
#endif

#include "exec/step.h"

#if defined(__HIP__)
#include "gpu/hip.h"
#elif defined(__CUDACC__)
#include "gpu/cuda.h"
#else
#include "gpu/host.h"
#endif

namespace octavo::gpu {

// Blocks go through units in steps of the grid: a launch need not have one block for each.
#define OCTAVO_EACH(unit, count) for (int64_t unit = block_x(); unit < (count); unit += num_blocks_x())

OCTAVO_GPU_FN int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

OCTAVO_GPU_FN int lane() { return thread() % kWave; }
OCTAVO_GPU_FN int wave() { return thread() / kWave; }

OCTAVO_GPU_FN float shuffle_xor(float x, int mask) { return float_of_word(shuffle_xor(word_of_float(x), mask)); }
OCTAVO_GPU_FN float uniform(float x) { return float_of_word(uniform(word_of_float(x))); }
OCTAVO_GPU_FN float shuffle(float x, int from) { return float_of_word(shuffle(word_of_float(x), from)); }
OCTAVO_GPU_FN uint64_t shuffle(uint64_t x, int from) {
  const auto low = static_cast<uint32_t>(shuffle(static_cast<int32_t>(x), from));
  return static_cast<uint64_t>(static_cast<uint32_t>(shuffle(static_cast<int32_t>(x >> 32), from))) << 32 | low;
}

}  // namespace octavo::gpu
