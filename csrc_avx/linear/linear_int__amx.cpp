// linear_q4g32, linear_q8g32 (amx_groups.inl.h) and linear_q4k (amx_blocks.inl.h) at amx.
#include "linear/amx_blocks.inl.h"
#include "linear/amx_groups.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <PackedKind kind, int32_t flags>
struct Halves32 {
  static constexpr int64_t kGroup = 32;
  static constexpr bool kUsesMin = (flags & kHasMin) != 0;
  static constexpr int64_t kCodes = kind == PackedKind::q4g32 ? 256 : 512;

  explicit Halves32(int32_t) {}
  static constexpr int64_t bytes() { return record_bytes(kind, flags); }
  static void unpack(const uint8_t* record, int8_t* codes, float* halves) {
    if constexpr (kind == PackedKind::q4g32) {
      unpack_nibbles(record, bytes_of(flags & kZero8 ? 8 : 0), codes);
    } else {
      for (int c = 0; c < 8; ++c) _mm512_store_si512(codes + 64 * c, load_bytes(record + 64 * c));
    }
    V::store(halves, half_part(record + kCodes, 0));
    if constexpr (kUsesMin) V::store(halves + 16, half_part(record + kCodes + 32, 0));
  }
};

using PlanesQ4k = KPlanes<4, 0, 32, 0, true>;
static_assert(PlanesQ4k::kBytes == record_bytes(PackedKind::q4k, 0), "sub-scales, minima and halves behind nibbles");

}  // namespace

void linear_q4g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_groups<Halves32<PackedKind::q4g32, kHasMin>>(a, step, lane);
  if (a.flags & kZero8) return run_groups<Halves32<PackedKind::q4g32, kZero8>>(a, step, lane);
  run_groups<Halves32<PackedKind::q4g32, 0>>(a, step, lane);
}

void linear_q8g32(const void* raw, const Step& step, const Lane& lane) {
  run_groups<Halves32<PackedKind::q8g32, 0>>(*static_cast<const LinearArgs*>(raw), step, lane);
}

void linear_q4k(const void* raw, const Step& step, const Lane& lane) {
  run_blocks<PlanesQ4k, PackedKind::q4k>(raw, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
