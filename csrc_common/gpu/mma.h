// Matrix units, the same on every chip: C[16, 16] += A[16, 32] . B[16, 32]^T, by the instructions of CDNA (MFMA), RDNA (WMMA) and
// NVIDIA (mma.sync), or by the lanes of a wave that tell each other what they hold (host).
//
// Chips differ in which lane holds what. An operand is cut into units of 8 neighbouring inputs, 16 rows x 4 of them; a lane holds
// kUnits of them, `unit_row(u)` and `unit_q(u)` say which (inputs 8 q .. 8 q + 7). Both operands are cut alike, so that the order in
// which an instruction takes inputs does not matter to whoever loads them. Of the result a lane holds kValues, value i is the
// product of row `row_of_a(i)` and row `row_of_b(i)`.
//
// Sources: AMD's ISA documents of CDNA 2 to 4 and RDNA 3 and 4, "matrix instructions"; NVIDIA's PTX ISA, "mma".
#pragma once

#include "gpu/packed.h"

#if defined(__HIP__)
#include "gpu/mma_hip.h"
#elif defined(__CUDACC__)
#include "gpu/mma_cuda.h"
#else
#include "gpu/mma_host.h"
#endif

namespace octavo::gpu {

#if defined(OCTAVO_HAS_MMA)

// Loads an operand of bfloat16 or float16: `at(row, q)` is the address of a unit.
template <class Operand, class At>
OCTAVO_GPU_FN void load_operand(Operand& to, At&& at) {
  static_assert(sizeof to.w[0] == sizeof(Words4));
  for (int u = 0; u < kUnits; ++u) {
    const Words4 unit = *reinterpret_cast<const Words4*>(at(unit_row(u), unit_q(u)));
    for (int i = 0; i < 4; ++i) to.w[u][i] = unit.w[i];
  }
}
// 64 inputs of int8, units of 16: an operand of two products, or of one of twice the length.
struct OperandRuns8 {
  int32_t w[kUnits][4];
};
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandRuns8& a, const OperandRuns8& b) {
#if defined(OCTAVO_HAS_MMA_I8_64)
  mma_64(c, a.w[0], b.w[0]);
#else
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    OperandI8 x, y;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 2; ++i) x.w[u][i] = a.w[u][2 * half + i], y.w[u][i] = b.w[u][2 * half + i];
    mma(c, x, y);
  }
#endif
}
// Of int8.
template <class At>
OCTAVO_GPU_FN void load_operand(OperandI8& to, At&& at) {
  for (int u = 0; u < kUnits; ++u) {
    const Words2 unit = *reinterpret_cast<const Words2*>(at(unit_row(u), unit_q(u)));
    for (int i = 0; i < 2; ++i) to.w[u][i] = unit.w[i];
  }
}

#endif

}  // namespace octavo::gpu
