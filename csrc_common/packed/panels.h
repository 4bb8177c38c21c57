// Packed weight layouts: panels of 16 outputs, one layout for every level and every number of rows.
//
// Outputs are padded with zeros to a multiple of 16, inputs to a multiple of 32 (K-quants: 256 by their own format).
// A panel is contiguous; panels follow each other. Sixteen outputs are the lanes of one AVX-512 register, two AVX2
// registers, four NEON registers, and the columns of one AMX B tile. Integer codes come as dwords of four inputs (VNNI, SDOT by
// element); SMMLA's eight inputs are two of them, zipped as they are read.
//
//   bf16    [k/2][16][2]          bf16, neighbouring inputs in pairs (TDPBF16PS order)
//   f16     [k][16]               f16
//   f32     [k][16]               f32
//   q4g32   per group of 32 inputs: 256 B codes, 32 B d (f16[16]), with kHasMin 32 B m (f16[16])
//           codes [4][16][4]: byte (c, lane, i) holds input 4c + i in its low nibble, input 16 + 4c + i in its high nibble
//   q8g32   per group of 32 inputs: 512 B codes [8][16][4] int8, 32 B d
//   q5g32, q6k, q5k, q3k, q2k: codes in bit planes (packed/planes.h)
//   q4k     per 256 inputs: 8 sub-blocks of 32 inputs as q4g32 codes (2,048 B), sub-scales u8 [8][16], sub-minima u8 [8][16],
//           d f16[16], dmin f16[16]
//   w8a8    per 64 inputs: codes [16][16][4] (1,024 B), uint8, each plus 128, on x86, int8 on Arm; behind the last record of a panel: scales f32[16]
//   i4      per group of 32, 64 or 128 inputs: codes as q4g32's, 256 B per 32 inputs; scales [16] in f32, f16 or bf16; with
//           kHasZeros zero points u8[16], else the zero point is 8
//
// q8g32 codes take all 256 values. Padded outputs have zero scales.
//
// Q4_0 packs as q4g32 without minima and with kZero8: the zero point 8 is taken off in int32 (on Arm beforehand: packed/flips.h). Q4_1 packs as q4g32 with minima,
// Q5_0 as q5g32, Q5_1 as q5g32 with minima, Q8_0 as q8g32, K-quants as their own layouts.
#pragma once
#include <cstdint>

#include "packed/planes.h"

namespace octavo {

constexpr int64_t kPanel = 16;

// kScaleBf16, kScaleF16: how scales are stored; neither: f32. kGroup64, kGroup128: inputs of a group of i4; neither: 32.
enum PackedFlags : int32_t {
  kHasMin = 1,
  kZero8 = 2,
  kHasZeros = 4,
  kScaleBf16 = 8,
  kScaleF16 = 16,
  kGroup64 = 32,
  kGroup128 = 64,
};

enum class PackedKind : int32_t { bf16, f16, f32, q4g32, q8g32, q4k, w8a8, i4, q5g32, q6k, q5k, q3k, q2k };

constexpr int64_t group_inputs(int32_t flags) { return flags & kGroup128 ? 128 : flags & kGroup64 ? 64 : 32; }
constexpr int64_t scale_bytes(int32_t flags) { return flags & (kScaleBf16 | kScaleF16) ? 2 : 4; }

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Bytes of one record: 32 inputs of a panel (K-quants: 256 inputs; w8a8: 64; i4: its group).
constexpr int64_t record_bytes(PackedKind kind, int32_t flags) {
  const bool has_min = flags & kHasMin;
  switch (kind) {
    case PackedKind::bf16:
    case PackedKind::f16: return 32 * kPanel * 2;
    case PackedKind::f32: return 32 * kPanel * 4;
    case PackedKind::q4g32: return 256 + 32 + (has_min ? 32 : 0);
    case PackedKind::q8g32: return 512 + 32;
    case PackedKind::q4k: return 2048 + 128 + 128 + 32 + 32;
    case PackedKind::w8a8: return 64 * kPanel;
    case PackedKind::i4: return (group_inputs(flags) / 2 + scale_bytes(flags) + (flags & kHasZeros ? 1 : 0)) * kPanel;
    case PackedKind::q5g32: return has_min ? PlanesQ5g32<true>::kBytes : PlanesQ5g32<false>::kBytes;
    case PackedKind::q6k: return PlanesQ6k::kBytes;
    case PackedKind::q5k: return PlanesQ5k::kBytes;
    case PackedKind::q3k: return PlanesQ3k::kBytes;
    case PackedKind::q2k: return PlanesQ2k::kBytes;
  }
  return 0;
}

constexpr int64_t record_inputs(PackedKind kind, int32_t flags = 0) {
  switch (kind) {
    case PackedKind::q4k:
    case PackedKind::q6k:
    case PackedKind::q5k:
    case PackedKind::q3k:
    case PackedKind::q2k: return 256;
    case PackedKind::w8a8: return 64;
    case PackedKind::i4: return group_inputs(flags);
    default: return 32;
  }
}

// What follows the records of a panel.
constexpr int64_t tail_bytes(PackedKind kind) { return kind == PackedKind::w8a8 ? 4 * kPanel : 0; }

constexpr int64_t panel_bytes(PackedKind kind, int32_t flags, int64_t k) {
  const int64_t inputs = record_inputs(kind, flags);
  return round_up(k, inputs) / inputs * record_bytes(kind, flags) + tail_bytes(kind);
}

constexpr int64_t packed_bytes(PackedKind kind, int32_t flags, int64_t n, int64_t k) {
  return round_up(n, kPanel) / kPanel * panel_bytes(kind, flags, k);
}

}  // namespace octavo
