// linear_{q6k,q5k,q4k,q3k,q2k} by vectors of SVE; arithmetic and order as in linear_k.inl.h.
#pragma once
#include "linear/k_layouts.inl.h"
#include "linear/sve_codes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <class L>
OCTAVO_INLINE svint32_t sub_scale(const uint8_t* record, int group, int part) {
  const uint8_t* p = record + L::kScalesAt + 16 * group;
  if constexpr (L::kSigned) return svld1sb_vnum_s32(all(), reinterpret_cast<const int8_t*>(p), part);
  const svint32_t both = svld1ub_vnum_s32(all(), p, part);
  return L::kPairs ? svand_n_s32_x(all(), both, 15) : both;
}
template <class L>
OCTAVO_INLINE svint32_t sub_min(const uint8_t* record, int group, int part) {
  if constexpr (!L::kPairs) return svld1ub_vnum_s32(all(), record + L::kMinsAt + 16 * group, part);
  const svuint32_t both = svld1ub_vnum_u32(all(), record + L::kScalesAt + 16 * group, part);
  return svreinterpret_s32_u32(svlsr_n_u32_x(all(), both, 4));
}

template <class L, int P, int R, int N>
OCTAVO_INLINE void k_products(const Registers<svint32_t>& isum, const uint8_t* record, int part0, const int8_t* x, int64_t ldx) {
  using Codes = typename L::Codes;
  constexpr int kRun = L::kGroup / 4;  // steps of a sub-scale
  OCTAVO_REGISTERS(svuint8_t, masks);
  keep_masks<Codes>(masks);
#pragma GCC unroll 1
  for (int chunk = 0; chunk < 8; ++chunk)
    steps<0, 8 / kRun>([&] OCTAVO_STEP(run) {
      OCTAVO_REGISTERS(svint32_t, sum);
      steps<0, R * N>([&] OCTAVO_STEP(i) { sum.template at<i>() = svdup_s32(0); });
      add_steps<Codes, P, R, N, run * kRun, (run + 1) * kRun>(sum, masks, record + chunk * Codes::kChunk, part0, x + 32 * chunk, ldx);
      steps<0, N>([&] OCTAVO_STEP(i) {
        const svint32_t scale = sub_scale<L>(record, 8 / kRun * chunk + run, part0 + i);
        steps<0, R>([&] OCTAVO_STEP(r) {
          svint32_t& y = isum.template at<r * N + i>();
          y = svmla_s32_x(all(), y, sum.template at<r * N + i>(), scale);
        });
      });
    });
}

// `sums`: of the inputs of each sub-scale, [R][16]. Up to four sums per output take turns, so that the latency of a product does not
// show.
template <class L, int R, int N>
OCTAVO_INLINE void k_mins(const Registers<svint32_t>& msum, const uint8_t* record, int part0, const int32_t* sums) {
  constexpr int kSums = R * N, kTurns = kSums <= 2 ? 4 : kSums <= 4 ? 2 : 1;
  OCTAVO_REGISTERS(svint32_t, y);
  steps<0, kSums * kTurns>([&] OCTAVO_STEP(i) { y.template at<i>() = svdup_s32(0); });
#pragma GCC unroll 1
  for (int group = 0; group < 256 / L::kGroup; group += kTurns)
    steps<0, kTurns>([&] OCTAVO_STEP(t) {
      steps<0, N>([&] OCTAVO_STEP(i) {
        const svint32_t min = sub_min<L>(record, group + t, part0 + i);
        steps<0, R>([&] OCTAVO_STEP(r) {
          svint32_t& sum = y.template at<t * kSums + r * N + i>();
          sum = svmla_s32_x(all(), sum, min, svdup_s32(sums[16 * r + group + t]));
        });
      });
    });
  steps<0, kSums>([&] OCTAVO_STEP(i) {
    svint32_t sum = y.template at<i>();
    steps<1, kTurns>([&] OCTAVO_STEP(t) { sum = svadd_s32_x(all(), sum, y.template at<t * kSums + i>()); });
    msum.template at<i>() = sum;
  });
}

template <class L, int P, int R, int N>
OCTAVO_INLINE void k_block(const LinearArgs& a, const uint8_t* record, int part0, const int8_t* x, const float* scales,
                           const int32_t* sums, float* acc) {
  OCTAVO_REGISTERS(svint32_t, isum);
  steps<0, R * N>([&] OCTAVO_STEP(i) { isum.template at<i>() = svdup_s32(0); });
  k_products<L, P, R, N>(isum, record, part0, x, a.ldx);
  const auto add = [&](const Registers<svint32_t>& sum, const uint8_t* halves, auto change) __attribute__((always_inline)) {
    steps<0, N>([&] OCTAVO_STEP(i) {
      const svfloat32_t d = halves_part(halves, part0 + i);
      steps<0, R>([&] OCTAVO_STEP(r) {
        const svfloat32_t s = change(svmul_f32_x(all(), svdup_f32(scales[r * a.lds]), d));
        const svfloat32_t y = svld1_vnum_f32(all(), acc + 16 * r, part0 + i);
        svst1_vnum_f32(all(), acc + 16 * r, part0 + i, svmla_f32_x(all(), y, svcvt_f32_s32_x(all(), sum.template at<r * N + i>()), s));
      });
    });
  };
  add(isum, record + L::kHalvesAt, [](svfloat32_t s) __attribute__((always_inline)) { return s; });
  if constexpr (L::kMin) {
    k_mins<L, R, N>(isum, record, part0, sums);
    add(isum, record + L::kHalvesAt + 32, [](svfloat32_t s) __attribute__((always_inline)) { return svneg_f32_x(all(), s); });
  }
}

// Sums of 16 inputs as those of a sub-scale.
template <class L, int R>
OCTAVO_INLINE void group_sums(const int32_t* sums, int64_t ld, int32_t* out) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < 256 / L::kGroup; i += 4) {
      const int32_t* from = sums + r * ld + L::kGroup / 16 * i;
      const int32x4_t low = vld1q_s32(from);
      vst1q_s32(out + 16 * r + i, L::kGroup == 16 ? low : vpaddq_s32(low, vld1q_s32(from + 4)));
    }
}

template <class L, int P>
struct KKernel {
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    constexpr int N = R > 2 && P > 2 ? 2 : P;
    const int64_t blocks = round_up(a.k, 256) / 256;
    const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
    const float* scales = a.scales + at.row * a.lds;
    const int32_t* sums = a.sums + 16 * at.row * a.lds;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<1> ahead(at, record, panel_bytes);
    alignas(64) float acc[R * 16] = {};
    alignas(16) int32_t of_groups[R * 16];
    for (int64_t b = 0; b < blocks; ++b, record += L::kBytes, x += 256, ++scales, sums += 16) {
      ahead.ask(record, L::kBytes);
      if constexpr (L::kMin) group_sums<L, R>(sums, 16 * a.lds, of_groups);
      steps<0, P / N>([&] OCTAVO_STEP(n) { k_block<L, P, R, N>(a, record, n * N, x, scales, of_groups, acc); });
    }
    finish_panel<R>(a, at, acc);
  }
};

template <class L>
inline void run_k(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = round_up(a.k, 256) / 256 * L::kBytes;
  with_parts([&](auto p) { run_kernel<KKernel<L, p>>(a, step, lane, bytes); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS

#include "linear/k_ops.inl.h"
