// What this x86 processor and operating system let a program use, as feature bits.
//
// CPUID says what the chip has, XGETBV what the system saves on a context switch, and AMX needs a permission call; a feature
// counts only if all of them agree. A level is a set of bits: required bits subset of available bits.
#pragma once
#include <cstdint>

namespace octavo {

enum Feature : uint64_t {
  kAVX2 = 1u << 0,        // with FMA, F16C and BMI2: the group every AVX2 kernel here assumes
  kAVXVNNI = 1u << 1,     // 256-bit VPDPBUSD without AVX-512 (small cores)
  kAVX512 = 1u << 2,      // F, BW, DQ, VL, CD
  kAVX512VNNI = 1u << 3,
  kAVX512BF16 = 1u << 4,
  kAMXTile = 1u << 5,
  kAMXInt8 = 1u << 6,
  kAMXBF16 = 1u << 7,
  kAVX512VBMI = 1u << 8,
};

struct Level {
  const char* name;
  uint64_t required;
};

// Slowest first. A kernel names one of these.
inline constexpr Level kLevels[] = {
    {"scalar", 0},
    {"avx2", kAVX2},
    {"avxvnni", kAVX2 | kAVXVNNI},
    {"avx512", kAVX2 | kAVX512},
    {"avx512vnni", kAVX2 | kAVX512 | kAVX512VNNI},
    {"avx512bf16", kAVX2 | kAVX512 | kAVX512VBMI | kAVX512BF16},
    {"avx512fast", kAVX2 | kAVX512 | kAVX512BF16},  // not the contract's order: --numerics fast
    {"amx", kAVX2 | kAVX512 | kAVX512VNNI | kAVX512BF16 | kAMXTile | kAMXInt8 | kAMXBF16},
};

// Bits usable on this machine; asks the system for AMX once. Never executes an instruction it is testing for.
uint64_t available_features();

}  // namespace octavo
