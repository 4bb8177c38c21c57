// pack_w8a8 and pack_i4: codes with scales (and zero points) in tensors of their own -> panels (packed/panels.h).
//
// Sources are as checkpoints keep them: w8a8 rows of int8, i4 rows of nibbles, the earlier input low, whole words of eight.
// Inputs beyond k become codes that stand for zero; outputs beyond total_n have scale zero. Work is shared out as in pack_panels.inl.h.
#pragma once
#include "packed/flips.h"
#include "ref/pack_panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// The scale of one row and group, as stored; returns whether it is not finite.
struct Scale {
  uint32_t bits;  // f32, or a 16-bit word
  bool is_bad;

  Scale(const PackArgs& a, int64_t row, int64_t group) : bits(0) {
    const int64_t bytes = scale_bytes(a.flags);
    std::memcpy(&bits, static_cast<const uint8_t*>(a.scales) + (row * a.groups + group) * bytes, static_cast<size_t>(bytes));
    is_bad = a.flags & kScaleF16    ? is_bad_f16(static_cast<uint16_t>(bits))
             : a.flags & kScaleBf16 ? is_bad_bf16(static_cast<uint16_t>(bits))
                                    : is_bad_f32(bits);
  }
  float value(int32_t flags) const {
    return flags & kScaleF16    ? vec::float_of_f16(static_cast<uint16_t>(bits))
           : flags & kScaleBf16 ? vec::float_of_bf16(static_cast<uint16_t>(bits))
                                : vec::float_of(bits);
  }
};

// 16 bytes of nibbles in order (inputs 0..31 of a chunk) -> 16 bytes holding input t low and input 16 + t high.
inline void pair_halves(const uint8_t* nibbles, uint8_t* out) {
  for (int j = 0; j < 8; ++j) {
    const int first = nibbles[j], second = nibbles[8 + j];
    out[2 * j] = static_cast<uint8_t>((first & 15) | (second & 15) << 4);
    out[2 * j + 1] = static_cast<uint8_t>(first >> 4 | (second & 0xF0));
  }
}

}  // namespace

void pack_w8a8(const void* raw, const Step&, const Lane& lane) {
  const auto& a = *static_cast<const PackArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k), records = round_up(a.k, 64) / 64;
  run_panels(a, lane, [&](int64_t panel, int low, int high, int64_t row, int zero_to) {
    uint8_t* record = static_cast<uint8_t*>(a.packed) + panel * bytes;
    uint8_t* scales = record + records * record_bytes(PackedKind::w8a8, 0);
    const uint8_t* source = static_cast<const uint8_t*>(a.source);
    bool is_bad = false;
    for (int64_t r = 0; r < records; ++r, record += record_bytes(PackedKind::w8a8, 0)) {
      const int64_t count = a.k - 64 * r < 64 ? a.k - 64 * r : 64;
      for (int l = low; l < zero_to; ++l) {
        alignas(64) uint8_t line[64] = {};
        if (l < high) std::memcpy(line, source + (row + l - low) * a.row_bytes + 64 * r, static_cast<size_t>(count));
        for (uint8_t& code : line) code ^= kByteFlip;
        scatter(record, l, line, 16);
      }
    }
    for (int l = low; l < zero_to; ++l) {
      float s = 0.0f;
      if (l < high) {
        const Scale scale(a, row + l - low, 0);
        is_bad |= scale.is_bad;
        s = scale.value(a.flags);
      }
      std::memcpy(scales + 4 * l, &s, 4);
    }
    note_bad(a, is_bad);
  });
}

void pack_i4(const void* raw, const Step&, const Lane& lane) {
  const auto& a = *static_cast<const PackArgs*>(raw);
  const int64_t inputs = group_inputs(a.flags), bytes = record_bytes(PackedKind::i4, a.flags), word = scale_bytes(a.flags);
  run_panels(a, lane, [&](int64_t panel, int low, int high, int64_t row, int zero_to) {
    uint8_t* record = static_cast<uint8_t*>(a.packed) + panel * a.groups * bytes;
    bool is_bad = false;
    for (int64_t g = 0; g < a.groups; ++g, record += bytes) {
      uint8_t* scales = record + inputs * kPanel / 2;
      uint8_t* zeros = scales + word * kPanel;
      for (int l = low; l < zero_to; ++l) {
        const int64_t from = row + l - low;
        for (int64_t i = 0; i < inputs; i += 32) {
          const int64_t first = g * inputs + i, left = (a.k - first) / 2;
          alignas(16) uint8_t line[16] = {}, paired[16];
          if (l < high && left > 0)
            std::memcpy(line, static_cast<const uint8_t*>(a.source) + from * a.row_bytes + first / 2,
                        static_cast<size_t>(left < 16 ? left : 16));
          pair_halves(line, paired);
          if (!(a.flags & kHasZeros))
            for (uint8_t& pair : paired) pair ^= kNibbleFlip;
          scatter(record + 8 * i, l, paired, 4);
        }
        uint32_t bits = 0;
        uint8_t zero = 0;
        if (l < high) {
          const Scale scale(a, from, g);
          is_bad |= scale.is_bad;
          bits = scale.bits;
          if (a.flags & kHasZeros) zero = a.zeros[from * a.groups + g];
        }
        std::memcpy(scales + word * l, &bits, static_cast<size_t>(word));
        if (a.flags & kHasZeros) zeros[l] = zero;
      }
    }
    note_bad(a, is_bad);
  });
}

}  // namespace octavo::OCTAVO_ISA_NS
