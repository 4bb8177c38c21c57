// What this Arm processor and operating system let a program use, as feature bits.
//
// The kernel says so in HWCAP and HWCAP2 (Linux, Documentation/arch/arm64/elf_hwcaps.rst); SVE's vector length is asked for
// apart. A level is a set of bits: required bits subset of available bits. SVE implies neither i8mm nor bf16.
#pragma once
#include <cstdint>

namespace octavo {

enum Feature : uint64_t {
  kDotProd = 1u << 0,  // SDOT, UDOT: FEAT_DotProd
  kI8MM = 1u << 1,     // SMMLA, USDOT: FEAT_I8MM
  kBF16 = 1u << 2,     // BFMLALB, BFMLALT, BFDOT, BFMMLA: FEAT_BF16
  kSVE = 1u << 3,      // of a length that the kernels were verified at
  kSVEI8MM = 1u << 4,
  kSVEBF16 = 1u << 5,
};

struct Level {
  const char* name;
  uint64_t required;
};

// Slowest first. A kernel names one of these. SVE's own dot product needs no FEAT_DotProd. Vectors longer than NEON's save
// instructions; products of matrices (i8mm) and of pairs (bf16) do more in each, also where vectors are longer.
inline constexpr Level kLevels[] = {
    {"neon", 0},
    {"dotprod", kDotProd},
    {"sve", kSVE},
    {"i8mm", kDotProd | kI8MM},
    {"bf16", kBF16},
    {"svebf16", kSVE | kSVEBF16},
    {"bf16fast", kBF16},  // not the contract's order: --numerics fast
};

// Bits of a processor whose kernel reports these words, and whose SVE vectors have so many bytes (0: it has none).
uint64_t features_of(uint64_t hwcap, uint64_t hwcap2, int64_t sve_bytes);

// Bytes of an SVE vector of this thread; 0: the processor has none, or its system does not tell.
int64_t sve_bytes();

// Bits usable on this machine.
uint64_t available_features();

}  // namespace octavo
