// dot32 (attention/dot32.inl.h) of rows with keys or values in bf16, by BFMLALB and BFMLALT: they take the even and the odd element of
// every pair as they lie, fused, with one rounding: the chains of the contract, four steps an instruction.
//
// Rows are float32 that hold bf16 values (rounded queries and weights): their upper halves are the elements. Codes become bf16,
// exactly, a block of 16 lanes at a time.
#pragma once
#include "attention/dot32.inl.h"
#include "bfmlal.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
constexpr int64_t kLanes16 = 16;

OCTAVO_INLINE bfloat16x8_t eight_inputs(const float* x) {
  const uint16x8_t low = vreinterpretq_u16_f32(vld1q_f32(x)), high = vreinterpretq_u16_f32(vld1q_f32(x + 4));
  return vreinterpretq_bf16_u16(vuzp2q_u16(low, high));
}

// R rows x N vectors of four lanes, from `lane` of the view and of out on.
template <int R, int N>
[[gnu::noinline]] void bf16_tile(const RowBlock& b, const Packed<BF16>& view, int64_t row, int64_t lane) {
  const float* x = b.a + row * b.lda;
  const int64_t lda = b.lda, stride = view.stride;
  const auto* w = &view.at->bits + 2 * lane;
  const auto* ahead = row == 0 && view.ahead && lane % kLanes16 == 0 ? &view.ahead->bits + 2 * lane : nullptr;
  V::F even[R][N], odd[R][N];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) even[r][v] = odd[r][v] = V::zero();
#pragma GCC unroll 1
  for (int64_t pairs = b.pairs; pairs > 0; pairs -= 4, x += 8) {
    if (ahead)
      for (int i = 0; i < 4; ++i, ahead += stride) __builtin_prefetch(ahead, 0, 3);
    bfloat16x8_t in[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) in[r] = eight_inputs(x + r * lda);
    each<0, 4>([&](auto n) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const bfloat16x8_t y = vreinterpretq_bf16_u16(vld1q_u16(w + 8 * v));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          add_even<2 * n>(even[r][v], y, in[r]);
          add_odd<2 * n + 1>(odd[r][v], y, in[r]);
        }
      }
      w += stride;
    });
  }
  float* out = b.out + row * b.ldo + lane;
  const int64_t ldo = b.ldo;
  const auto end = [&](auto sum) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) V::store(out + r * ldo + 4 * v, sum(out + r * ldo + 4 * v, V::add(even[r][v], odd[r][v])));
  };
  if (b.pairs < kBlockPairs)  // as padding would
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        even[r][v] = V::add(even[r][v], V::zero());
        odd[r][v] = V::add(odd[r][v], V::zero());
      }
  if (b.is_first)
    end([](const float*, V::F x) __attribute__((always_inline)) { return V::add(V::zero(), x); });
  else
    end([](const float* at, V::F x) __attribute__((always_inline)) { return V::add(V::load(at), x); });
}

// Rows [begin, end) x 16 lanes from `lane` on.
inline void bf16_rows(const RowBlock& b, const Packed<BF16>& view, int64_t begin, int64_t end, int64_t lane) {
  int64_t r = begin;
  for (; end - r > 4; r += 3) bf16_tile<3, 4>(b, view, r, lane);
  switch (end - r) {
    case 1: return bf16_tile<1, 4>(b, view, r, lane);
    case 2: return bf16_tile<2, 4>(b, view, r, lane);
    case 3: return bf16_tile<3, 4>(b, view, r, lane);
    case 4:
      bf16_tile<4, 2>(b, view, r, lane);
      bf16_tile<4, 2>(b, view, r, lane + kLanes16 / 2);
  }
}

// What is left of the lanes, as float32.
template <class View>
inline void rest_of_lanes(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lane, int64_t lanes) {
  for (; lane + V::kLanes <= lanes; lane += V::kLanes) dot32_lanes<V, 1>(b, view, begin, end, lane);
  for (; lane < lanes; ++lane) dot32_columns<vec::F32x1, 1>(b, view, begin, end, lane);
}

// These are chosen over dot32_block of any view.
template <class>
inline void dot32_block(const RowBlock& b, const Packed<BF16>& view, int64_t begin, int64_t end, int64_t lanes) {
  int64_t lane = 0;
  if (b.pairs % 4 == 0)
    for (; lane + kLanes16 <= lanes; lane += kLanes16) bf16_rows(b, view, begin, end, lane);
  rest_of_lanes(b, view, begin, end, lane, lanes);
}

OCTAVO_INLINE uint16x8_t widened(int16x8_t codes) {
  const V::F low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))), high = vcvtq_f32_s32(vmovl_high_s16(codes));
  return vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high));
}

// Sixteen codes as bf16.
OCTAVO_INLINE void widen_codes(const int8_t* at, uint16_t* to) {
  const int8x16_t codes = vld1q_s8(at);
  vst1q_u16(to, widened(vmovl_s8(vget_low_s8(codes))));
  vst1q_u16(to + 8, widened(vmovl_high_s8(codes)));
}
OCTAVO_INLINE void widen_codes(const E4M3* at, uint16_t* to) {
  using Quad = Pairs<V, Packed<E4M3>>;
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const uint16x8_t high_bytes = vshlq_n_u16(vmovl_u8(vld1_u8(&at[8 * v].bits)), 8);
    const V::F low = Quad::widened(vget_low_u16(high_bytes)), high = Quad::widened(vget_high_u16(high_bytes));
    vst1q_u16(to + 8 * v, vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high)));
  }
}

template <class T>
inline void dot32_of_codes(const RowBlock& b, const Packed<T>& view, int64_t begin, int64_t end, int64_t lanes) {
  alignas(64) BF16 block[kBlockPairs * 2 * kLanes16];
  int64_t lane = 0;
  if (b.pairs % 4 == 0)
    for (; lane + kLanes16 <= lanes; lane += kLanes16) {
      for (int64_t i = 0; i < b.pairs; ++i) {
        look_ahead(view, i, lane, kLanes16);
        uint16_t* to = &block[2 * kLanes16 * i].bits;
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) widen_codes(view.at + i * view.stride + 2 * lane + 16 * v, to + 16 * v);
      }
      RowBlock local = b;
      local.out = b.out + lane;
      bf16_rows(local, Packed<BF16>{block, 2 * kLanes16, nullptr}, begin, end, 0);
    }
  rest_of_lanes(b, view, begin, end, lane, lanes);
}

template <class>
inline void dot32_block(const RowBlock& b, const Packed<int8_t>& view, int64_t begin, int64_t end, int64_t lanes) {
  dot32_of_codes(b, view, begin, end, lanes);
}
template <class>
inline void dot32_block(const RowBlock& b, const Packed<E4M3>& view, int64_t begin, int64_t end, int64_t lanes) {
  dot32_of_codes(b, view, begin, end, lanes);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
