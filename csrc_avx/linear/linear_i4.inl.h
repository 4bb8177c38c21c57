// linear_i4: 4-bit weights in groups of 32, 64 or 128 inputs with scales (and zero points) kept apart, inputs int8 per (row, group).
//
// Per group, in order: acc = fma(float(isum), s_a * s, acc), isum = sum q_a q - z * asum exact in int32, z 8 where none is kept. The
// tile is group_tile.inl.h's. Without VNNI products of 32 inputs are summed in int16 (see bytes.inl.h), then widened.
#pragma once
#include "linear/group_tile.inl.h"
#include "packed/i4_record.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <bool has_zeros>
struct I4 : I4Record {
  static constexpr int kChunk = 256;
  static constexpr bool kUsesMin = false, kIsOneChunk = false, kIsNarrow = !kVnni;

  using I4Record::I4Record;

  static I codes(const uint8_t* chunk, int step) { return nibbles_of(load_bytes(chunk + 64 * (step % 4)), step >= 4); }
  static I step(I sum, I codes, I x) { return mac(sum, codes, x); }
  I start(const uint8_t* record, int part, const int32_t* asum) const {
    if constexpr (has_zeros)  // |asum| < 2^15: a 16-bit product with a zero point is exact
      return madd16(widen_u8(record + zeros_at + part * V::kLanes), V::ibroadcast(-*asum));
    else
      return less_times<3>(asum);
  }
  F scale(const uint8_t* record, int part) const { return scale_part(record + scales_at, flags, part); }
};

}  // namespace

void linear_i4(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasZeros) return run_groups<I4<true>>(a, step, lane);
  run_groups<I4<false>>(a, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
