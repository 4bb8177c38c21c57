// linear_i4 at amx: 4-bit codes less their zero points on tiles, one group's exact int32 sums at a time (amx_groups.inl.h).
#include "linear/amx_groups.inl.h"
#include "packed/i4_record.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int64_t group, bool has_zeros>
struct I4Groups : I4Record {
  static constexpr int64_t kGroup = group;
  static constexpr bool kUsesMin = false;

  using I4Record::I4Record;

  void unpack(const uint8_t* record, int8_t* codes, float* d) const {
    I zeros = bytes_of(8);
    if constexpr (has_zeros) {
      const I bytes = widen_u8(record + zeros_at);
      zeros = mul32(bytes, V::ibroadcast(0x01010101));
    }
    for (int64_t i = 0; i < group / 32; ++i) unpack_nibbles(record + 256 * i, zeros, codes + 512 * i);
    V::store(d, scale_part(record + scales_at, flags, 0));
  }
};

template <int64_t group>
inline void run_i4(const LinearArgs& a, const Step& step, const Lane& lane) {
  if (a.flags & kHasZeros) return run_groups<I4Groups<group, true>>(a, step, lane);
  run_groups<I4Groups<group, false>>(a, step, lane);
}

}  // namespace

void linear_i4(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  switch (group_inputs(a.flags)) {
    case 32: return run_i4<32>(a, step, lane);
    case 64: return run_i4<64>(a, step, lane);
    default: return run_i4<128>(a, step, lane);
  }
}

}  // namespace octavo::OCTAVO_ISA_NS
