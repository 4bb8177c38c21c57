// gpu/mma.h on AMD GPUs: MFMA of CDNA 2 to 4 (wave64), WMMA of RDNA 3 and 4 (wave32).
#pragma once

namespace octavo::gpu {

#if defined(__GFX9__)
#define OCTAVO_HAS_MMA 1
constexpr int kUnits = 1, kValues = 4;
OCTAVO_GPU_FN int unit_row(int) { return thread() % 16; }
OCTAVO_GPU_FN int unit_q(int) { return thread() % kWave / 16; }
OCTAVO_GPU_FN int row_of_a(int i) { return thread() % kWave / 16 * 4 + i; }
OCTAVO_GPU_FN int row_of_b(int) { return thread() % 16; }
#elif defined(__GFX11__)
#define OCTAVO_HAS_MMA 1
constexpr int kUnits = 4, kValues = 8;  // both halves of a wave hold the whole of a row
OCTAVO_GPU_FN int unit_row(int) { return thread() % 16; }
OCTAVO_GPU_FN int unit_q(int u) { return u; }
OCTAVO_GPU_FN int row_of_a(int i) { return 2 * i + thread() % kWave / 16; }
OCTAVO_GPU_FN int row_of_b(int) { return thread() % 16; }
#elif defined(__GFX12__)
#define OCTAVO_HAS_MMA 1
constexpr int kUnits = 2, kValues = 8;
OCTAVO_GPU_FN int unit_row(int) { return thread() % 16; }
OCTAVO_GPU_FN int unit_q(int u) { return 2 * u + thread() % kWave / 16; }
OCTAVO_GPU_FN int row_of_a(int i) { return thread() % kWave / 16 * 8 + i; }
OCTAVO_GPU_FN int row_of_b(int) { return thread() % 16; }
#endif

#if defined(OCTAVO_HAS_MMA)

// CDNA 3 reads E4M3 codes as FNUZ, of half their value.
#if defined(__gfx942__)
constexpr float kF8Product = 4.0f;
#else
constexpr float kF8Product = 1.0f;
#endif

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

template <class To, class From>
OCTAVO_GPU_FN To bits_as(const From& from) {
  return __builtin_bit_cast(To, from);
}
template <class T, int n>
using Vector = T __attribute__((ext_vector_type(n)));
using VectorF32 = Vector<float, kValues>;
using VectorI32 = Vector<int, kValues>;
OCTAVO_GPU_FN VectorF32 vector_of(const SumsF32& c) { return bits_as<VectorF32>(c); }
OCTAVO_GPU_FN VectorI32 vector_of(const SumsI32& c) { return bits_as<VectorI32>(c); }

// c += a . b by two instructions of half as many inputs each, which take operands as n values of T.
template <class T, int n, class Sums, class Operand, class One>
OCTAVO_GPU_FN void mma_by_halves(Sums& c, const Operand& a, const Operand& b, One&& one) {
  struct Halves {
    Vector<T, n> part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  auto sums = vector_of(c);
  for (int i = 0; i < 2; ++i) sums = one(x.part[i], y.part[i], sums);
  c = bits_as<Sums>(sums);
}
// The same by one instruction.
template <class T, class Sums, class Operand, class One>
OCTAVO_GPU_FN void mma_at_once(Sums& c, const Operand& a, const Operand& b, One&& one) {
  c = bits_as<Sums>(one(bits_as<T>(a), bits_as<T>(b), vector_of(c)));
}
#define OCTAVO_MMA(...) [](auto x, auto y, auto sums) { return __builtin_amdgcn_##__VA_ARGS__; }

#if defined(__gfx950__)
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  mma_at_once<Vector<__bf16, 8>>(c, a, b, OCTAVO_MMA(mfma_f32_16x16x32_bf16(x, y, sums, 0, 0, 0)));
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  mma_at_once<Vector<_Float16, 8>>(c, a, b, OCTAVO_MMA(mfma_f32_16x16x32_f16(x, y, sums, 0, 0, 0)));
}
#define OCTAVO_HAS_MMA_I8_64 1
OCTAVO_GPU_FN void mma_64(SumsI32& c, const int32_t (&a)[4], const int32_t (&b)[4]) {
  mma_at_once<Vector<int, 4>>(c, a, b, OCTAVO_MMA(mfma_i32_16x16x64_i8(x, y, sums, 0, 0, 0)));
}
#elif defined(__GFX9__)
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  mma_by_halves<short, 4>(c, a, b, OCTAVO_MMA(mfma_f32_16x16x16bf16_1k(x, y, sums, 0, 0, 0)));
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  mma_by_halves<_Float16, 4>(c, a, b, OCTAVO_MMA(mfma_f32_16x16x16f16(x, y, sums, 0, 0, 0)));
}
#elif defined(__GFX11__)
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  mma_by_halves<short, 16>(c, a, b, OCTAVO_MMA(wmma_f32_16x16x16_bf16_w32(x, y, sums)));
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  mma_by_halves<_Float16, 16>(c, a, b, OCTAVO_MMA(wmma_f32_16x16x16_f16_w32(x, y, sums)));
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  mma_by_halves<int, 4>(c, a, b, OCTAVO_MMA(wmma_i32_16x16x16_iu8_w32(true, x, true, y, sums, false)));
}
#else
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  mma_by_halves<__bf16, 8>(c, a, b, OCTAVO_MMA(wmma_f32_16x16x16_bf16_w32_gfx12(x, y, sums)));
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  mma_by_halves<_Float16, 8>(c, a, b, OCTAVO_MMA(wmma_f32_16x16x16_f16_w32_gfx12(x, y, sums)));
}
#define OCTAVO_HAS_F8 1
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF8& a, const OperandF8& b) {
  mma_by_halves<int, 2>(c, a, b, OCTAVO_MMA(wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x, y, sums)));
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  mma_by_halves<int, 2>(c, a, b, OCTAVO_MMA(wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, sums, false)));
}
#endif

#if defined(__gfx90a__)
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  mma_by_halves<int, 1>(c, a, b, OCTAVO_MMA(mfma_i32_16x16x16i8(x[0], y[0], sums, 0, 0, 0)));
}
#elif defined(__GFX9__)
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  mma_at_once<long>(c, a, b, OCTAVO_MMA(mfma_i32_16x16x32_i8(x, y, sums, 0, 0, 0)));
}
#endif
#if defined(__gfx942__) || defined(__gfx950__)
#define OCTAVO_HAS_F8 1
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF8& a, const OperandF8& b) {
  mma_at_once<long>(c, a, b, OCTAVO_MMA(mfma_f32_16x16x32_fp8_fp8(x, y, sums, 0, 0, 0)));
}
#endif

#undef OCTAVO_MMA
#endif

}  // namespace octavo::gpu
