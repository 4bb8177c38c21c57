// linear_w8a8 by vectors of SVE; arithmetic and order as in linear_w8a8.inl.h.
#pragma once
#include "linear/sve_panel.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int P>
struct W8a8 {
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  // Up to four sums per output take turns, so that the latency of a product does not show: sixteen vectors of sums at most.
  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    constexpr int kSums = R * P, kTurns = kSums <= 4 ? 4 : kSums <= 8 ? 2 : 1;
    const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
    const uint8_t* codes = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    const int64_t k = round_up(a.k, 64);
    Ahead<1> ahead(at, codes, panel_bytes);
    OCTAVO_REGISTERS(svint32_t, isum);
    steps<0, kSums * kTurns>([&] OCTAVO_STEP(i) { isum.template at<i>() = svdup_s32(0); });
    for (int64_t i = 0; i < k; i += 32, codes += 512) {
      ahead.ask(codes, 512);
      OCTAVO_REGISTERS(svint8_t, in);
      steps<0, R>([&] OCTAVO_STEP(r) {
        in.template at<2 * r>() = svld1rq_s8(all(), x + r * a.ldx + i);
        in.template at<2 * r + 1>() = svld1rq_s8(all(), x + r * a.ldx + i + 16);
      });
      steps<0, 8>([&] OCTAVO_STEP(n) {
        steps<0, P>([&] OCTAVO_STEP(p) {
          const svint8_t w = svld1_vnum_s8(all(), reinterpret_cast<const int8_t*>(codes), P * n + p);
          steps<0, R>([&] OCTAVO_STEP(r) {
            constexpr int slot = 2 * r + n / 4;
            dot_lane<slot, n % 4>(isum.template at<n % kTurns * kSums + r * P + p>(), w, in.template at<slot>());
          });
        });
      });
    }
    const auto* scales = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + (at.panel + 1) * panel_bytes -
                                                        tail_bytes(PackedKind::w8a8));
    alignas(64) float sums[R * 16];
    steps<0, R>([&] OCTAVO_STEP(r) {
      const svfloat32_t s = svdup_f32(a.scales[(at.row + r) * a.lds]);
      steps<0, P>([&] OCTAVO_STEP(p) {
        svint32_t sum = isum.template at<r * P + p>();
        steps<1, kTurns>([&] OCTAVO_STEP(t) { sum = svadd_s32_x(all(), sum, isum.template at<t * kSums + r * P + p>()); });
        const svfloat32_t scale = svmul_f32_x(all(), s, svld1_vnum_f32(all(), scales, p));
        svst1_vnum_f32(all(), sums + 16 * r, p, svmul_f32_x(all(), svcvt_f32_s32_x(all(), sum), scale));
      });
    });
    finish_panel<R>(a, at, sums);
  }
};

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  with_parts([&](auto p) { run_kernel<W8a8<p>>(a, step, lane, panel_bytes(PackedKind::w8a8, 0, a.k)); });
}

}  // namespace octavo::OCTAVO_ISA_NS
