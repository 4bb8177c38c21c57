// linear_{q6k,q5k,q4k,q3k,q2k}: 256 inputs per float16 scale with integer sub-scales (and minima), inputs int8 per (row, 256).
//
// Per 256 inputs: isum = sum of sub_scale * (sum of q_a q), msum = sum of sub_min * (sum of q_a), both exact in int32; then
// acc = fma(float(isum), s_a * d, acc) and, with minima, acc = fma(float(msum), -(s_a * dmin), acc). Integer sums are in registers,
// with three rows and more for half a panel; float sums, used once in 256 inputs, in memory.
#pragma once
#include "linear/codes.inl.h"
#include "linear/k_layouts.inl.h"
#include "linear/tile_walk.inl.h"
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "linear/k_pairs.inl.h"
#endif

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Sub-scales or minima of N parts from `part0` on, as int16.
template <bool is_signed, int N>
OCTAVO_INLINE void widen_fields(const uint8_t* p, int16x8_t (&out)[(N + 1) / 2]) {
#pragma GCC unroll 2
  for (int i = 0; i < N; i += 2) {
    const uint8x8_t bytes = vld1_u8(p + 4 * i);
    out[i / 2] = is_signed ? vmovl_s8(vreinterpret_s8_u8(bytes)) : vreinterpretq_s16_u16(vmovl_u8(bytes));
  }
}

template <class L, int N>
OCTAVO_INLINE void sub_scales(const uint8_t* p, I (&out)[N]) {
  int16x8_t both[N / 2];
  widen_fields<L::kSigned, N>(p, both);
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    if (L::kPairs && i % 2 == 0) both[i / 2] = vandq_s16(both[i / 2], vdupq_n_s16(15));
    out[i] = vmovl_s16(i % 2 ? vget_high_s16(both[i / 2]) : vget_low_s16(both[i / 2]));
  }
}

template <class L, int R, int N>
OCTAVO_INLINE void k_products(Ints<R, N>* isum, const uint8_t* record, int part0, const int8_t* x, int64_t ldx) {
  using Codes = typename L::Codes;
  constexpr int kRun = L::kGroup / 4;  // steps of a sub-scale
  const uint8_t* scales = record + L::kScalesAt + 4 * part0;
  isum->clear();
#pragma GCC unroll 1
  for (int chunk = 0; chunk < 8; ++chunk, record += Codes::kChunk, x += 32, scales += 32 / L::kGroup * 16) {
    const ChunkInputs<R> in(x, ldx);
    I scale[8 / kRun][N];
#if defined(__ARM_FEATURE_DOTPROD)
    if constexpr (R == 1) {
      Ints<1, 4> sum[8 / kRun];
      for (auto& of_run : sum) of_run.clear();
      const uint8_t* at = record;
      add_row<Codes>(sum, at, in);
#pragma GCC unroll 2
      for (int run = 0; run < 8 / kRun; ++run) {
        sub_scales<L, N>(scales + 16 * run, scale[run]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) isum->v[0][i] = vmlaq_s32(isum->v[0][i], sum[run].v[0][i], scale[run][i]);
      }
      continue;
    }
#endif
    each<0, 8 / kRun>([&](auto run) __attribute__((always_inline)) { sub_scales<L, N>(scales + 16 * run, scale[run]); });
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const Codes codes(record, part0 + i);
      each<0, 8 / kRun>([&](auto run) __attribute__((always_inline)) {
        Ints<R, 1> sum;
        sum.clear();
        add_steps<run * kRun, (run + 1) * kRun>(&sum, codes, in);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) isum->v[r][i] = vmlaq_s32(isum->v[r][i], sum.v[r][0], scale[run][i]);
      });
    }
  }
}

// Sums of the inputs of each sub-scale fit int16: at most 32 * 127.
template <class L>
OCTAVO_INLINE void group_sums(const int32_t* sums, int16x8_t (&out)[32 / L::kGroup]) {
#pragma GCC unroll 2
  for (int i = 0; i < 32 / L::kGroup; ++i) {
    I a = vld1q_s32(sums + 8 * i), b = vld1q_s32(sums + 8 * i + 4);
    if constexpr (L::kGroup == 32) a = vpaddq_s32(a, b), b = vpaddq_s32(vld1q_s32(sums + 8), vld1q_s32(sums + 12));
    out[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
  }
}

template <class L, int R, int N>
OCTAVO_INLINE void k_mins(Ints<R, N>* msum, const uint8_t* record, int part0, const int32_t* sums, int64_t lds) {
  constexpr int kVectors = 32 / L::kGroup;
  msum->clear();
  int16x8_t asum[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) group_sums<L>(sums + 16 * r * lds, asum[r]);
  const uint8_t* mins = record + (L::kPairs ? L::kScalesAt : L::kMinsAt) + 4 * part0;
  each<0, 8 * kVectors>([&](auto group) __attribute__((always_inline)) {
    int16x8_t min[N / 2];
    widen_fields<false, N>(mins + 16 * group, min);
#pragma GCC unroll 2
    for (int i = 0; i < N / 2; ++i) {
      if (L::kPairs) min[i] = vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(min[i]), 4));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int16x8_t s = asum[r][group / 8];
        I &low = msum->v[r][2 * i], &high = msum->v[r][2 * i + 1];
        low = vmlal_laneq_s16(low, vget_low_s16(min[i]), s, group % 8);
        high = vmlal_high_laneq_s16(high, min[i], s, group % 8);
      }
    }
  });
}

template <class L, int R, int N>
OCTAVO_INLINE void k_block(const LinearArgs& a, const uint8_t* record, int part0, const int8_t* x, const float* scales,
                           const int32_t* sums, float* acc) {
  Ints<R, N> isum;
  k_products<L, R, N>(&isum, record, part0, x, a.ldx);
  F d[4], low[4];
  halves16(record + L::kHalvesAt, d);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      float* sum = acc + 16 * r + 4 * (part0 + i);
      V::store(sum, V::fma(to_float<typename L::Codes>(isum.v[r][i]), V::mul(V::broadcast(scales[r * a.lds]), d[part0 + i]), V::load(sum)));
    }
  if constexpr (L::kMin) {
    Ints<R, N> msum;
    k_mins<L, R, N>(&msum, record, part0, sums, a.lds);
    halves16(record + L::kHalvesAt + 32, low);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        float* sum = acc + 16 * r + 4 * (part0 + i);
        const F minus = V::neg(V::mul(V::broadcast(scales[r * a.lds]), low[part0 + i]));
        V::store(sum, V::fma(V::cvt_f32(msum.v[r][i]), minus, V::load(sum)));
      }
  }
}

template <class L, int rows>
struct KKernel {
  static constexpr int kRows = rows, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  [[gnu::noinline]] void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    const int64_t blocks = round_up(a.k, 256) / 256;
    const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
    const float* scales = a.scales + at.row * a.lds;
    const int32_t* sums = a.sums + 16 * at.row * a.lds;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<1> ahead(at, record, panel_bytes);
    alignas(16) float acc[R * 16] = {};
    for (int64_t b = 0; b < blocks; ++b, record += L::kBytes, x += 256, ++scales, sums += 16) {
      ahead.ask(record, L::kBytes);
      if constexpr (R > 2) {
        k_block<L, R, 2>(a, record, 0, x, scales, sums, acc);
        k_block<L, R, 2>(a, record, 2, x, scales, sums, acc);
      } else {
        k_block<L, R, 4>(a, record, 0, x, scales, sums, acc);
      }
    }
    finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, acc);
  }
};

template <class L>
inline void run_k(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = round_up(a.k, 256) / 256 * L::kBytes;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  const KPairs<L> pairs{a, bytes};
  if (is_paired(pairs, step, lane)) return run_pairs(pairs, step, lane);
  run_kernel<KKernel<L, kFewRows>>(a, step, lane, bytes);
#else
  run_kernel<KKernel<L, 4>>(a, step, lane, bytes);
#endif
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS

#include "linear/k_ops.inl.h"
