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
