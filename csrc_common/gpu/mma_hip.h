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

#if defined(__GFX9__)
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  using F4 = float __attribute__((ext_vector_type(4)));
  F4 sums = bits_as<F4>(c);
#if defined(__gfx950__)
  using H8 = __bf16 __attribute__((ext_vector_type(8)));
  sums = __builtin_amdgcn_mfma_f32_16x16x32_bf16(bits_as<H8>(a), bits_as<H8>(b), sums, 0, 0, 0);
#else
  struct Halves {
    short __attribute__((ext_vector_type(4))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.part[i], y.part[i], sums, 0, 0, 0);
#endif
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  using F4 = float __attribute__((ext_vector_type(4)));
  F4 sums = bits_as<F4>(c);
#if defined(__gfx950__)
  using H8 = _Float16 __attribute__((ext_vector_type(8)));
  sums = __builtin_amdgcn_mfma_f32_16x16x32_f16(bits_as<H8>(a), bits_as<H8>(b), sums, 0, 0, 0);
#else
  struct Halves {
    _Float16 __attribute__((ext_vector_type(4))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_mfma_f32_16x16x16f16(x.part[i], y.part[i], sums, 0, 0, 0);
#endif
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  using I4 = int __attribute__((ext_vector_type(4)));
  I4 sums = bits_as<I4>(c);
#if defined(__gfx90a__)
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_mfma_i32_16x16x16i8(a.w[0][i], b.w[0][i], sums, 0, 0, 0);
#else
  sums = __builtin_amdgcn_mfma_i32_16x16x32_i8(bits_as<long>(a), bits_as<long>(b), sums, 0, 0, 0);
#endif
  c = bits_as<SumsI32>(sums);
}
#if defined(__gfx950__)
#define OCTAVO_HAS_MMA_I8_64 1
OCTAVO_GPU_FN void mma_64(SumsI32& c, const int32_t (&a)[4], const int32_t (&b)[4]) {
  using I4 = int __attribute__((ext_vector_type(4)));
  c = bits_as<SumsI32>(__builtin_amdgcn_mfma_i32_16x16x64_i8(bits_as<I4>(a), bits_as<I4>(b), bits_as<I4>(c), 0, 0, 0));
}
#endif
#if defined(__gfx942__) || defined(__gfx950__)
#define OCTAVO_HAS_F8 1
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF8& a, const OperandF8& b) {
  using F4 = float __attribute__((ext_vector_type(4)));
  c = bits_as<SumsF32>(__builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(bits_as<long>(a), bits_as<long>(b), bits_as<F4>(c), 0, 0, 0));
}
#endif
#elif defined(__GFX11__)
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  using F8 = float __attribute__((ext_vector_type(8)));
  struct Halves {
    short __attribute__((ext_vector_type(16))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  F8 sums = bits_as<F8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x.part[i], y.part[i], sums);
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  using F8 = float __attribute__((ext_vector_type(8)));
  struct Halves {
    _Float16 __attribute__((ext_vector_type(16))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  F8 sums = bits_as<F8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x.part[i], y.part[i], sums);
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  using I8 = int __attribute__((ext_vector_type(8)));
  struct Halves {
    int __attribute__((ext_vector_type(4))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  I8 sums = bits_as<I8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x.part[i], true, y.part[i], sums, false);
  c = bits_as<SumsI32>(sums);
}
#else
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  using F8 = float __attribute__((ext_vector_type(8)));
  struct Halves {
    __bf16 __attribute__((ext_vector_type(8))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  F8 sums = bits_as<F8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x.part[i], y.part[i], sums);
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  using F8 = float __attribute__((ext_vector_type(8)));
  struct Halves {
    _Float16 __attribute__((ext_vector_type(8))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  F8 sums = bits_as<F8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x.part[i], y.part[i], sums);
  c = bits_as<SumsF32>(sums);
}
#define OCTAVO_HAS_F8 1
OCTAVO_GPU_FN void mma(SumsF32& c, const OperandF8& a, const OperandF8& b) {
  using F8 = float __attribute__((ext_vector_type(8)));
  struct Halves {
    int __attribute__((ext_vector_type(2))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  F8 sums = bits_as<F8>(c);
  for (int i = 0; i < 2; ++i) sums = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x.part[i], y.part[i], sums);
  c = bits_as<SumsF32>(sums);
}
OCTAVO_GPU_FN void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  using I8 = int __attribute__((ext_vector_type(8)));
  struct Halves {
    int __attribute__((ext_vector_type(2))) part[2];
  };
  const Halves x = bits_as<Halves>(a), y = bits_as<Halves>(b);
  I8 sums = bits_as<I8>(c);
  for (int i = 0; i < 2; ++i)
    sums = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x.part[i], true, y.part[i], sums, false);
  c = bits_as<SumsI32>(sums);
}
#endif

#endif

}  // namespace octavo::gpu
