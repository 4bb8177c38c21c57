// pack_{q6_k,q5_k,q3_k,q2_k,q5_0,q5_1}: blocks of a checkpoint -> codes in bit planes (packed/planes.h).
#pragma once
#include "ref/pack.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Adds bits `from` and on of eight dwords of codes to the b dwords of a lane in each plane of b bits.
template <int b, int from>
inline void to_plane(const uint32_t* codes, uint8_t* plane, int lane) {
  constexpr uint32_t kMask = ((1u << b) - 1) * 0x01010101u;
  uint32_t out[b] = {};
  for (int v = 0; v < 8; ++v) out[v % b] |= (codes[v] >> from & kMask) << (b * (v / b));
  scatter(plane, lane, out, b);
}

// 32 codes that have their zero point off.
template <class Planes>
inline void to_planes(const int8_t* codes, uint8_t* chunk, int lane) {
  uint8_t bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(codes[i] + Planes::kZero);
  uint32_t dwords[8];
  std::memcpy(dwords, bytes, 32);
  to_plane<Planes::kLow, 0>(dwords, chunk, lane);
  if constexpr (Planes::kHigh > 0) to_plane<Planes::kHigh, Planes::kLow>(dwords, chunk + 64 * Planes::kLow, lane);
}

template <class Gguf, class Planes, PackedKind kind>
struct PackKPlanes {
  using Source = Gguf;
  static constexpr PackedKind kKind = kind;
  static constexpr int32_t kFlags = 0;
  static_assert(Gguf::kGroup == Planes::kGroup && Gguf::kMin == Planes::kMin, "one format");
  static bool lane(const uint8_t* block, uint8_t* record, int lane) {
    Block b;
    Gguf::unpack(block, &b);
    for (int c = 0; c < 8; ++c) to_planes<Planes>(b.codes + 32 * c, record + c * Planes::kChunk, lane);
    for (int g = 0; g < 256 / Planes::kGroup; ++g) {
      uint8_t scale = static_cast<uint8_t>(b.sub_scales[g]);
      if (Planes::kPairs)
        scale = static_cast<uint8_t>(scale | b.sub_mins[g] << 4);
      else if (Planes::kMin)
        record[Planes::kMinsAt + 16 * g + lane] = b.sub_mins[g];
      record[Planes::kScalesAt + 16 * g + lane] = scale;
    }
    put_half(record + Planes::kHalvesAt, lane, b.d);
    if (Planes::kMin) put_half(record + Planes::kHalvesAt + 32, lane, b.m);
    return is_bad_f16(b.d) || (Planes::kMin && is_bad_f16(b.m));
  }
};

template <class Gguf>
struct PackQ5g32 {
  using Source = Gguf;
  using Planes = PlanesQ5g32<Gguf::kMin>;
  static constexpr PackedKind kKind = PackedKind::q5g32;
  static constexpr int32_t kFlags = Gguf::kMin ? kHasMin : 0;
  static bool lane(const uint8_t* block, uint8_t* record, int lane) {
    Block b;
    Gguf::unpack(block, &b);
    to_planes<Planes>(b.codes, record, lane);
    put_half(record + Planes::kHalvesAt, lane, b.d);
    if (Gguf::kMin) put_half(record + Planes::kHalvesAt + 32, lane, b.m);
    return is_bad_f16(b.d) || (Gguf::kMin && is_bad_f16(b.m));
  }
};

}  // namespace

void pack_q5_0(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ5g32<GgufQ5_0>>(raw, lane); }
void pack_q5_1(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ5g32<GgufQ5_1>>(raw, lane); }
void pack_q2_k(const void* raw, const Step&, const Lane& lane) {
  pack_blocks<PackKPlanes<GgufQ2_K, PlanesQ2k, PackedKind::q2k>>(raw, lane);
}
void pack_q3_k(const void* raw, const Step&, const Lane& lane) {
  pack_blocks<PackKPlanes<GgufQ3_K, PlanesQ3k, PackedKind::q3k>>(raw, lane);
}
void pack_q5_k(const void* raw, const Step&, const Lane& lane) {
  pack_blocks<PackKPlanes<GgufQ5_K, PlanesQ5k, PackedKind::q5k>>(raw, lane);
}
void pack_q6_k(const void* raw, const Step&, const Lane& lane) {
  pack_blocks<PackKPlanes<GgufQ6_K, PlanesQ6k, PackedKind::q6k>>(raw, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
