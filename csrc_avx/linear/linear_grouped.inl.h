// linear_q4g32 and linear_q8g32: weights in groups of 32 inputs with float16 scales, inputs int8 per (row, 32); the tile is
// group_tile.inl.h's.
#pragma once
#include "linear/group_tile.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Float16 scales, and minima, behind the codes.
template <PackedKind kind, int32_t flags>
struct Halves32 {
  static constexpr bool kUsesMin = (flags & kHasMin) != 0;
  static constexpr bool kIsOneChunk = true;
  static constexpr int kChunk = kind == PackedKind::q4g32 ? 256 : 512;

  explicit Halves32(int32_t) {}
  static constexpr int64_t inputs() { return 32; }
  static constexpr int64_t bytes() { return record_bytes(kind, flags); }
  static F scale(const uint8_t* record, int part) { return half_part(record + kChunk, part); }
  static F min(const uint8_t* record, int part) { return half_part(record + kChunk + 32, part); }
};

template <int32_t flags>
struct Q4g32 : Halves32<PackedKind::q4g32, flags> {
  using Halves32<PackedKind::q4g32, flags>::Halves32;
  static constexpr bool kIsNarrow = !kVnni;

  static I codes(const uint8_t* chunk, int step) { return nibbles_of(load_bytes(chunk + 64 * (step % 4)), step >= 4); }
  static I step(I sum, I codes, I x) { return mac(sum, codes, x); }
  static I start(const uint8_t*, int, const int32_t* asum) { return flags & kZero8 ? less_times<3>(asum) : V::ibroadcast(0); }
};

struct Q8g32 : Halves32<PackedKind::q8g32, 0> {
  using Halves32<PackedKind::q8g32, 0>::Halves32;
  static constexpr bool kIsNarrow = false;

  static I codes(const uint8_t* chunk, int step) {
    const I codes = load_bytes(chunk + 64 * step);
    return kVnni ? xor_bits(codes, bytes_of(128)) : codes;
  }
  static I step(I sum, I codes, I x) { return kVnni ? mac_wide(sum, codes, x) : mac_signed(sum, codes, x); }
  static I start(const uint8_t*, int, const int32_t* asum) { return kVnni ? less_times<7>(asum) : V::ibroadcast(0); }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
