// Four float32 lanes: NEON of Armv8.0. The names and rules are those of scalar.h.
#pragma once

#include <arm_neon.h>

#include "scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

struct F32x4 {
  static constexpr int kLanes = 4;
  using F = float32x4_t;
  using I = int32x4_t;
  using M = uint32x4_t;

  static F zero() { return vdupq_n_f32(0.0f); }
  static F broadcast(float x) { return vdupq_n_f32(x); }
  static I ibroadcast(int32_t x) { return vdupq_n_s32(x); }

  static F load(const float* p) { return vld1q_f32(p); }
  static F load_n(const float* p, int n) {
    alignas(16) float lanes[4] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
  }
  static F load_bf16(const uint16_t* p) { return widen_bf16(vld1_u16(p)); }
  static F load_bf16_n(const uint16_t* p, int n) { return widen_bf16(load16_n(p, n)); }
  static F load_f16(const uint16_t* p) { return widen_f16(vld1_u16(p)); }
  static F load_f16_n(const uint16_t* p, int n) { return widen_f16(load16_n(p, n)); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static void store_n(float* p, F x, int n) {
    alignas(16) float lanes[4];
    vst1q_f32(lanes, x);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static void store_bf16(uint16_t* p, F x) { vst1_u16(p, narrow_bf16(x)); }
  static void store_bf16_n(uint16_t* p, F x, int n) { store16_n(p, narrow_bf16(x), n); }
  static void store_f16(uint16_t* p, F x) { vst1_u16(p, narrow_f16(x)); }
  static void store_f16_n(uint16_t* p, F x, int n) { store16_n(p, narrow_f16(x), n); }

  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F sqrt(F x) { return vsqrtq_f32(x); }
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  // On the bits: FNEG and FABS would do, but compilers may fold them into others.
  static F neg(F x) { return from_bits(veorq_s32(bits(x), vdupq_n_s32(INT32_MIN))); }
  static F abs(F x) { return from_bits(vandq_s32(bits(x), vdupq_n_s32(INT32_MAX))); }
  static F copysign(F x, F s) { return vbslq_f32(vdupq_n_u32(0x80000000u), s, x); }
  static F round_even(F x) { return vrndnq_f32(x); }
  static I cvt_i32(F x) { return vcvtnq_s32_f32(x); }
  static I cut_i32(F x) { return vcvtq_s32_f32(x); }
  static F cvt_f32(I x) { return vcvtq_f32_s32(x); }

  static I bits(F x) { return vreinterpretq_s32_f32(x); }
  static F from_bits(I x) { return vreinterpretq_f32_s32(x); }
  static I iadd(I a, I b) { return vaddq_s32(a, b); }
  static I isub(I a, I b) { return vsubq_s32(a, b); }
  static I iand(I a, I b) { return vandq_s32(a, b); }
  static I ior(I a, I b) { return vorrq_s32(a, b); }
  static I ixor(I a, I b) { return veorq_s32(a, b); }
  static I umax(I a, I b) {
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
  }
  static I iload(const int32_t* p) { return vld1q_s32(p); }
  using Wide = uint64x2_t;
  static Wide even(I x) { return vreinterpretq_u64_s32(x); }
  static Wide odd(I x) { return high(even(x)); }
  static Wide same(uint32_t x) { return vdupq_n_u64(x); }
  static Wide product(Wide a, uint32_t b) { return vmull_u32(vmovn_u64(a), vdup_n_u32(b)); }
  static Wide high(Wide a) { return vshrq_n_u64(a, 32); }
  static Wide wxor(Wide a, Wide b) { return veorq_u64(a, b); }
  static I join(Wide even, Wide odd) { return vreinterpretq_s32_u64(vsliq_n_u64(even, odd, 32)); }
  template <int n>
  static I shl(I x) {
    return vshlq_n_s32(x, n);
  }
  template <int n>
  static I shr(I x) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), n));
  }
  template <int n>
  static I sar(I x) {
    return vshrq_n_s32(x, n);
  }

  static M lt(F a, F b) { return vcltq_f32(a, b); }
  static M gt(F a, F b) { return vcgtq_f32(a, b); }
  static M eq(F a, F b) { return vceqq_f32(a, b); }
  static F select(M m, F a, F b) { return vbslq_f32(m, a, b); }
  static uint32_t mask_bits(M m) { return vaddvq_u32(vandq_u32(m, each_bit())); }
  static M bits_mask(uint32_t bits) { return vtstq_u32(vdupq_n_u32(bits), each_bit()); }
  static F max_of_fours(F x) {
    const F pairs = max(x, vrev64q_f32(x));
    return max(pairs, vextq_f32(pairs, pairs, 2));
  }

  static float fold16(const F (&part)[4]) {
    const F v = vaddq_f32(vaddq_f32(part[0], part[2]), vaddq_f32(part[1], part[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }

  static M each_bit() {
    static constexpr uint32_t kEach[4] = {1, 2, 4, 8};
    return vld1q_u32(kEach);
  }
  static F widen_bf16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
  static F widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
  static uint16x4_t narrow_f16(F x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
  // The contract's rounding (scalar.h bf16_of): as BFCVTN does it where denormals are flushed.
  static uint16x4_t narrow_bf16(F x) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return vreinterpret_u16_bf16(vcvt_bf16_f32(x));
#else
    const F y = flushed(x);
    return vaddhn_u32(vreinterpretq_u32_f32(y), rounding_bf16(y));
#endif
  }
  static uint16x8_t narrow_bf16(F low, F high) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
#else
    const F y = flushed(high);
    return vaddhn_high_u32(narrow_bf16(low), vreinterpretq_u32_f32(y), rounding_bf16(y));
#endif
  }
  // Denormals to zero, NaN to quiet NaN. Compilers take FMUL by 1 for nothing at all.
  static F flushed(F x) { return vmulxq_f32(x, vdupq_n_f32(1.0f)); }
  // What makes the upper half of x's bits x rounded, half to even; nothing for a NaN, whose bits could overflow.
  static M rounding_bf16(F x) {
    const M is_odd = vtstq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x10000u));
    return vandq_u32(vsubq_u32(vdupq_n_u32(0x7FFFu), is_odd), vceqq_f32(x, x));
  }
  static uint16x4_t load16_n(const uint16_t* p, int n) {
    alignas(8) uint16_t lanes[4] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return vld1_u16(lanes);
  }
  static void store16_n(uint16_t* p, uint16x4_t h, int n) {
    alignas(8) uint16_t lanes[4];
    vst1_u16(lanes, h);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
};

}  // namespace octavo::OCTAVO_ISA_NS::vec
