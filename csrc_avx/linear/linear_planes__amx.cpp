// linear_{q6k,q5k,q3k,q2k,q5g32} at amx: K-quants in blocks of 256 inputs (amx_blocks.inl.h), Q5_0 and Q5_1 in groups of 32
// (amx_groups.inl.h), on codes taken out of their planes.
#include "linear/amx_blocks.inl.h"
#include "linear/amx_groups.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <bool has_min>
struct Q5Groups {
  using P = PlanesQ5g32<has_min>;
  static constexpr int64_t kGroup = 32;
  static constexpr bool kUsesMin = has_min;

  explicit Q5Groups(int32_t) {}
  static constexpr int64_t bytes() { return P::kBytes; }
  static void unpack(const uint8_t* record, int8_t* codes, float* halves) {
    each<0, 8>([&](auto v) {
      store_bytes(codes + 64 * v, _mm512_sub_epi8(Planes<P>::template code<v>(record, 0), bytes_of(P::kZero)));
    });
    V::store(halves, half_part(record + P::kHalvesAt, 0));
    if constexpr (has_min) V::store(halves + 16, half_part(record + P::kHalvesAt + 32, 0));
  }
};

}  // namespace

void linear_q6k(const void* raw, const Step& step, const Lane& lane) { run_blocks<PlanesQ6k, PackedKind::q6k>(raw, step, lane); }
void linear_q5k(const void* raw, const Step& step, const Lane& lane) { run_blocks<PlanesQ5k, PackedKind::q5k>(raw, step, lane); }
void linear_q3k(const void* raw, const Step& step, const Lane& lane) { run_blocks<PlanesQ3k, PackedKind::q3k>(raw, step, lane); }
void linear_q2k(const void* raw, const Step& step, const Lane& lane) { run_blocks<PlanesQ2k, PackedKind::q2k>(raw, step, lane); }

void linear_q5g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_groups<Q5Groups<true>>(a, step, lane);
  run_groups<Q5Groups<false>>(a, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
