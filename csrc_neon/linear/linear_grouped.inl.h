// linear_q4g32, linear_q8g32, linear_q5g32: weights in groups of 32 inputs with float16 scales, inputs int8 per (row, 32); and
// linear_i4: 4-bit weights in groups of 32, 64 or 128 with scales (and zero points) kept apart.
#pragma once
#include "linear/group_tile.inl.h"
#include "packed/i4_record.h"
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "linear/group_pairs.inl.h"
#endif

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Float16 scales, and minima, behind the codes of a group of 32; zero: a zero point that the codes still have.
template <class Codes_, bool has_min, int zero>
struct Halves32 {
  using Codes = Codes_;
  static constexpr bool kUsesMin = has_min;

  explicit Halves32(int32_t) {}
  static constexpr int64_t inputs() { return 32; }
  static constexpr int64_t bytes() { return Codes::kChunk + (has_min ? 64 : 32); }
  static OCTAVO_INLINE I start(const uint8_t*, int, int32_t asum) { return vdupq_n_s32(zero ? -zero * asum : 0); }
  static OCTAVO_INLINE void scales(const uint8_t* record, F (&out)[4]) { halves16(record + Codes::kChunk, out); }
  static OCTAVO_INLINE void mins(const uint8_t* record, F (&out)[4]) { halves16(record + Codes::kChunk + 32, out); }

#if defined(__ARM_FEATURE_MATMUL_INT8)
  static constexpr bool kUsesSums = has_min || zero != 0;
  static OCTAVO_INLINE I staged_sum(I asum) { return has_min ? V::bits(V::cvt_f32(asum)) : vmulq_n_s32(asum, -zero); }
  static OCTAVO_INLINE I start_pair(const uint8_t*, int, I staged) { return zero ? staged : vdupq_n_s32(0); }
  template <int N>
  static OCTAVO_INLINE void scale_pairs(const uint8_t* codes, int64_t to_halves, F (&out)[2 * N]) {
    half_pairs<N>(codes + Codes::kChunk + to_halves, out);
  }
  template <int N>
  static OCTAVO_INLINE void min_pairs(const uint8_t* codes, int64_t to_halves, F (&out)[2 * N]) {
    half_pairs<N>(codes + Codes::kChunk + 32 + to_halves, out);
  }
#endif
};

template <bool has_zeros>
struct I4 : I4Record {
  using Codes = std::conditional_t<has_zeros, NibbleCodes, SignedNibbles>;
  static constexpr bool kUsesMin = false;

  using I4Record::I4Record;

  OCTAVO_INLINE I start(const uint8_t* record, int part, int32_t asum) const {
    if constexpr (!has_zeros) return vdupq_n_s32(0);
    const uint16x8_t zeros = vmovl_u8(vld1_u8(record + zeros_at + part / 2 * 8));
    const uint16x4_t mine = part % 2 ? vget_high_u16(zeros) : vget_low_u16(zeros);
    return vmulq_n_s32(vreinterpretq_s32_u32(vmovl_u16(mine)), -asum);
  }
  OCTAVO_INLINE void scales(const uint8_t* record, F (&out)[4]) const {
    const uint8_t* p = record + scales_at;
    if (flags & kScaleF16) return halves16(p, out);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      out[i] = flags & kScaleBf16 ? V::load_bf16(reinterpret_cast<const uint16_t*>(p) + 4 * i)
                                   : V::load(reinterpret_cast<const float*>(p) + 4 * i);
  }

#if defined(__ARM_FEATURE_MATMUL_INT8)
  static constexpr bool kUsesSums = has_zeros;
  static OCTAVO_INLINE I staged_sum(I asum) { return vnegq_s32(asum); }
  OCTAVO_INLINE I start_pair(const uint8_t* record, int two, I staged) const {
    if constexpr (!has_zeros) return vdupq_n_s32(0);
    const uint8_t* zeros = record + zeros_at + 2 * two;
    return vmulq_s32((I{zeros[0], zeros[1], zeros[0], zeros[1]}), staged);
  }
  template <int N>
  OCTAVO_INLINE void scale_pairs(const uint8_t* codes, int64_t to_halves, F (&out)[2 * N]) const {
    const uint8_t* p = codes + scales_at;
    if (flags & kScaleF16) return half_pairs<N>(p + to_halves, out);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i)
      halves_twice(flags & kScaleBf16 ? V::load_bf16(reinterpret_cast<const uint16_t*>(p + to_halves) + 4 * i)
                                       : V::load(reinterpret_cast<const float*>(p) + 4 * i),
                   out + 2 * i);
  }
#endif
};

template <class Format>
inline void run_grouped(const LinearArgs& a, const Step& step, const Lane& lane) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  const Format format(a.flags);
  const GroupPairs<Format> pairs{a, format, round_up(a.k, format.inputs()) / format.inputs() * format.bytes()};
  if (is_paired(pairs, step, lane)) return run_pairs(pairs, step, lane);
  run_groups<Format, kFewRows>(a, step, lane);
#else
  run_groups<Format, kTileRows>(a, step, lane);
#endif
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS

#include "linear/grouped_ops.inl.h"
