// How weights lie in GPU memory: panels of 16 outputs, one layout for every chip and level.
//
// A unit is 8 inputs of one output, a record four units (q = 0..3) of 16 outputs, in the order [q][output], so that a wave reads
// records as they lie and each lane gets a run of inputs of one output: operands of the matrix instructions of AMD and NVIDIA.
//
//   dense     record = 32 inputs:  [q][output][8] elements of the format
//   codes4    record = 128 inputs: [q][output][group of 32][8], two codes a byte: byte i holds inputs i (low) and i + 4
//   codes8    record = 128 inputs: [half][q][output][group of 32 in the half][8] int8
//   runs8     record = 64 inputs:  [q][output][16] int8; two by two, as many bytes as codes8
//
// A panel is its records in order of inputs, zero-padded. Behind all panels lie the scales, [panel][group][output] each:
//
//   g32       d f16, then m f16 where there are minima                                   (group = 32 inputs)
//   apart     s f32, then zero points u8 (8 where the tensor keeps none)                 (group = 32, 64 or 128 inputs)
//   w8a8      s f32                                                                      (group = all inputs)
//   f8row, f8g128  s f32; mxfp8, mxfp4  s E8M0 of one byte                                (group = all inputs, 128; 32)
//   k256      d f16, dmin f16, then sub-scales int8 [panel][group][output][16] and, likewise, sub-minima u8  (group = 256)
#pragma once

#include "gpu/shim.h"

namespace octavo::gpu {

constexpr int kPanel = 16;
constexpr int kUnit = 8;            // inputs
constexpr int kDenseRecord = 32;    // inputs
constexpr int kCodesRecord = 128;   // inputs

OCTAVO_GPU_FN int64_t ceil_div(int64_t x, int64_t by) { return (x + by - 1) / by; }

// 16 and 8 bytes at an address that they divide.
struct alignas(16) Words4 {
  int32_t w[4];
};
struct alignas(8) Words2 {
  int32_t w[2];
};

// Place of input k of output `out` of a panel, in elements from the panel's start.
OCTAVO_GPU_FN int64_t dense_at(int64_t k, int64_t out) {
  return k / 32 * 512 + (k % 32 / kUnit * kPanel + out) * kUnit + k % kUnit;
}

// Codes of 4 bits: a unit is 4 bytes. 16 bytes of a lane: its units of four groups of 32.
struct Codes4 {
  static constexpr int kRecordBytes = 1024;
  static OCTAVO_GPU_FN int64_t unit_at(int64_t k, int64_t out) {  // in bytes from the panel's start; k a multiple of 8
    return k / 128 * kRecordBytes + ((k % 32 / kUnit) * kPanel + out) * 16 + k % 128 / 32 * 4;
  }
  // A lane's units of a record as they lie.
  struct Raw {
    Words4 of4;  // groups of 32
  };
  static OCTAVO_GPU_FN Raw fetch(const uint8_t* record, int q, int out) {
    return {reinterpret_cast<const Words4*>(record)[q * kPanel + out]};
  }
  // Those of group g: inputs 0..3, inputs 4..7, one code a byte.
  static OCTAVO_GPU_FN void group(const Raw& raw, int g, int32_t (&w)[2]) {
    w[0] = raw.of4.w[g] & 0x0F0F0F0F;
    w[1] = static_cast<int32_t>(static_cast<uint32_t>(raw.of4.w[g]) >> 4) & 0x0F0F0F0F;
  }
  static OCTAVO_GPU_FN void store(uint8_t* unit, const int (&codes)[8]) {
    for (int i = 0; i < 4; ++i) unit[i] = static_cast<uint8_t>(codes[i] | codes[i + 4] << 4);
  }
};

struct Codes8 {
  static constexpr int kRecordBytes = 2048;
  static OCTAVO_GPU_FN int64_t unit_at(int64_t k, int64_t out) {
    return k / 128 * kRecordBytes + k % 128 / 64 * 1024 + ((k % 32 / kUnit) * kPanel + out) * 16 + k % 64 / 32 * 8;
  }
  struct Raw {
    Words4 half[2];
  };
  static OCTAVO_GPU_FN Raw fetch(const uint8_t* record, int q, int out) {
    const auto* at = reinterpret_cast<const Words4*>(record) + q * kPanel + out;
    return {{at[0], at[64]}};
  }
  static OCTAVO_GPU_FN void group(const Raw& raw, int g, int32_t (&w)[2]) {
    for (int i = 0; i < 2; ++i) w[i] = raw.half[g / 2].w[g % 2 * 2 + i];
  }
  static OCTAVO_GPU_FN void store(uint8_t* unit, const int (&codes)[8]) {
    for (int i = 0; i < 8; ++i) unit[i] = static_cast<uint8_t>(codes[i]);
  }
};

// Codes of 8 bits where sums may be formed in any order of inputs: 16 neighbouring ones are a lane's.
struct Runs8 : Codes8 {
  static constexpr int kRunBytes = 1024, kRunInputs = 64;
  static OCTAVO_GPU_FN int64_t unit_at(int64_t k, int64_t out) {
    return k / kRunInputs * kRunBytes + (k % kRunInputs / 16 * kPanel + out) * 16 + k % 16;
  }
  // The first input, of a record of codes8, that a lane's unit of `group` has.
  static OCTAVO_GPU_FN int input_of(int q, int g) { return g / 2 * kRunInputs + q * 16 + g % 2 * kUnit; }
};

// Where the parts of a weight begin, in bytes.
template <class Codes>
struct Layout {
  int64_t panels, records, groups;
  OCTAVO_GPU_FN Layout(int64_t n, int64_t k, int64_t group)
      : panels(ceil_div(n, kPanel)), records(ceil_div(k, kCodesRecord)), groups(ceil_div(k, group)) {}
  OCTAVO_GPU_FN int64_t panel(int64_t p) const { return p * records * Codes::kRecordBytes; }
  OCTAVO_GPU_FN int64_t scales() const { return panel(panels); }
  OCTAVO_GPU_FN int64_t entry(int64_t p, int64_t g, int64_t out) const { return (p * groups + g) * kPanel + out; }
  OCTAVO_GPU_FN int64_t entries() const { return panels * groups * kPanel; }
};

// flags of LinearArgs and PackArgs, as platforms/gpu/weights.py gives them
enum PackedFlags : int32_t { kHasMin = 1, kZero8 = 2, kGroup64 = 32, kGroup128 = 64 };
OCTAVO_GPU_FN int64_t apart_group(int32_t flags) { return flags & kGroup128 ? 128 : flags & kGroup64 ? 64 : 32; }

}  // namespace octavo::gpu
