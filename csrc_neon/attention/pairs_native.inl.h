// Pairs (attention/pairs.inl.h) for the vectors of NEON. Where a load can take pairs apart (LD2, UZP), lanes stay in order.
#pragma once

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <>
struct Pairs<vec::F32x4, Packed<float>> {
  static constexpr int64_t kUnpackRows = 4;
  static float32x4_t even(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return vuzp1q_f32(vld1q_f32(p), vld1q_f32(p + 4));
  }
  static float32x4_t odd(const Packed<float>& b, int64_t i, int64_t lane) {
    const auto* p = b.at + i * b.stride + 2 * lane;
    return vuzp2q_f32(vld1q_f32(p), vld1q_f32(p + 4));
  }
  static float32x4_t order(float32x4_t x) { return x; }
};

template <>
struct Pairs<vec::F32x4, Packed<F16>> {
  static constexpr int64_t kUnpackRows = 2;
  static uint16x8_t halves(const Packed<F16>& b, int64_t i, int64_t lane) {
    return vld1q_u16(&(b.at + i * b.stride + 2 * lane)->bits);
  }
  static float32x4_t even(const Packed<F16>& b, int64_t i, int64_t lane) {
    const uint16x8_t h = halves(b, i, lane);
    return vec::F32x4::widen_f16(vget_low_u16(vuzp1q_u16(h, h)));
  }
  static float32x4_t odd(const Packed<F16>& b, int64_t i, int64_t lane) {
    const uint16x8_t h = halves(b, i, lane);
    return vec::F32x4::widen_f16(vget_low_u16(vuzp2q_u16(h, h)));
  }
  static float32x4_t order(float32x4_t x) { return x; }
};

template <>
struct Pairs<vec::F32x4, Packed<BF16>> {
  static constexpr int64_t kUnpackRows = 16;
  static uint32x4_t words(const Packed<BF16>& b, int64_t i, int64_t lane) {
    return vreinterpretq_u32_u16(vld1q_u16(&(b.at + i * b.stride + 2 * lane)->bits));
  }
  static float32x4_t even(const Packed<BF16>& b, int64_t i, int64_t lane) {
    return vreinterpretq_f32_u32(vshlq_n_u32(words(b, i, lane), 16));
  }
  static float32x4_t odd(const Packed<BF16>& b, int64_t i, int64_t lane) {
    return vreinterpretq_f32_u32(vandq_u32(words(b, i, lane), vdupq_n_u32(0xFFFF0000u)));
  }
  static float32x4_t order(float32x4_t x) { return x; }
};

template <>
struct Pairs<vec::F32x4, Packed<int8_t>> {
  static constexpr int64_t kUnpackRows = 6;
  static int32x4_t words(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    return vmovl_s16(vreinterpret_s16_s8(vld1_s8(b.at + i * b.stride + 2 * lane)));
  }
  static float32x4_t even(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(words(b, i, lane), 24), 24));
  }
  static float32x4_t odd(const Packed<int8_t>& b, int64_t i, int64_t lane) {
    return vcvtq_f32_s32(vshrq_n_s32(words(b, i, lane), 8));
  }
  static float32x4_t order(float32x4_t x) { return x; }
};

// Bits of E4M3 moved to where float16 has them are 2^-8 of the number, denormals too.
template <>
struct Pairs<vec::F32x4, Packed<E4M3>> {
  static constexpr int64_t kUnpackRows = 4;
  static uint16x4_t words(const Packed<E4M3>& b, int64_t i, int64_t lane) {
    return vreinterpret_u16_u8(vld1_u8(&(b.at + i * b.stride + 2 * lane)->bits));
  }
  static float32x4_t widened(uint16x4_t high_bytes) {
    const int16x4_t moved = vshr_n_s16(vreinterpret_s16_u16(high_bytes), 1);
    return vmulq_n_f32(vec::F32x4::widen_f16(vand_u16(vreinterpret_u16_s16(moved), vdup_n_u16(0xBF80))), 256.0f);
  }
  static float32x4_t even(const Packed<E4M3>& b, int64_t i, int64_t lane) { return widened(vshl_n_u16(words(b, i, lane), 8)); }
  static float32x4_t odd(const Packed<E4M3>& b, int64_t i, int64_t lane) { return widened(words(b, i, lane)); }
  static float32x4_t order(float32x4_t x) { return x; }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
