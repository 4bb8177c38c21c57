// gpu/mma.h on NVIDIA GPUs: mma.sync of 16 x 8 results, two of which make a result of 16 x 16. Lane 4 r + q holds rows r and
// r + 8 of an operand. Products of E4M3 go through float16: those of mma.sync are said to keep some 14 bits of a sum on Hopper
// (DeepSeek-V3, arXiv:2412.19437).
#pragma once

#define OCTAVO_HAS_MMA 1

namespace octavo::gpu {

constexpr int kUnits = 2, kValues = 8;
OCTAVO_GPU_FN int unit_row(int u) { return thread() % kWave / 4 + 8 * u; }
OCTAVO_GPU_FN int unit_q(int) { return thread() % 4; }
OCTAVO_GPU_FN int row_of_a(int i) { return thread() % kWave / 4 + i % 4 / 2 * 8; }
OCTAVO_GPU_FN int row_of_b(int i) { return i / 4 * 8 + thread() % 4 * 2 + i % 2; }

constexpr float kF8Product = 1.0f;

struct OperandBF16 {
  int32_t w[kUnits][4];
};
struct OperandF16 {
  int32_t w[kUnits][4];
};
struct OperandI8 {
  int32_t w[kUnits][2];
};
struct OperandF8 {
  int32_t w[kUnits][2];
};
struct SumsF32 {
  float v[kValues] = {};
};
struct SumsI32 {
  int32_t v[kValues] = {};
};

// Words 2 i and 2 i + 1 of a unit go to step i of two: which inputs that is does not matter, as both operands do the same.
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; i += 2)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c.v[4 * half]), "+f"(c.v[4 * half + 1]), "+f"(c.v[4 * half + 2]), "+f"(c.v[4 * half + 3])
          : "r"(a.w[0][i]), "r"(a.w[1][i]), "r"(a.w[0][i + 1]), "r"(a.w[1][i + 1]), "r"(b.w[half][i]), "r"(b.w[half][i + 1]));
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; i += 2)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c.v[4 * half]), "+f"(c.v[4 * half + 1]), "+f"(c.v[4 * half + 2]), "+f"(c.v[4 * half + 3])
          : "r"(a.w[0][i]), "r"(a.w[1][i]), "r"(a.w[0][i + 1]), "r"(a.w[1][i + 1]), "r"(b.w[half][i]), "r"(b.w[half][i + 1]));
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  for (int half = 0; half < 2; ++half)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c.v[4 * half]), "+r"(c.v[4 * half + 1]), "+r"(c.v[4 * half + 2]), "+r"(c.v[4 * half + 3])
        : "r"(a.w[0][0]), "r"(a.w[1][0]), "r"(a.w[0][1]), "r"(a.w[1][1]), "r"(b.w[half][0]), "r"(b.w[half][1]));
}

}  // namespace octavo::gpu
