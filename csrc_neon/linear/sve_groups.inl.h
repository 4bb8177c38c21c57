// The products in groups with a float scale each, by vectors of SVE: q4g32, q8g32, q5g32 and i4. Arithmetic and order as in
// group_tile.inl.h, formats as in linear_grouped.inl.h.
//
// A Format has Codes; inputs(), bytes() of a group's record; start(record, part, asum), what isum starts from; and
// scales<N>(record, part0, d) and, where kUsesMin, mins, of N parts.
#pragma once
#include "linear/sve_codes.inl.h"
#include "packed/i4_record.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <int N>
OCTAVO_INLINE void half_parts(const uint8_t* p, int part0, const Registers<svfloat32_t>& out) {
  steps<0, N>([&] OCTAVO_STEP(i) { out.template at<i>() = halves_part(p, part0 + i); });
}

// Float16 scales, and minima, behind the codes of a group of 32; zero: a zero point that the codes still have.
template <class Codes_, bool has_min, int zero>
struct Halves32 {
  using Codes = Codes_;
  static constexpr bool kUsesMin = has_min;

  explicit Halves32(int32_t) {}
  static constexpr int64_t inputs() { return 32; }
  static constexpr int64_t bytes() { return Codes::kChunk + (has_min ? 64 : 32); }
  static OCTAVO_INLINE svint32_t start(const uint8_t*, int, int32_t asum) { return svdup_s32(zero ? -zero * asum : 0); }
  template <int N>
  static OCTAVO_INLINE void scales(const uint8_t* record, int part0, const Registers<svfloat32_t>& out) {
    half_parts<N>(record + Codes::kChunk, part0, out);
  }
  template <int N>
  static OCTAVO_INLINE void mins(const uint8_t* record, int part0, const Registers<svfloat32_t>& out) {
    half_parts<N>(record + Codes::kChunk + 32, part0, out);
  }
};

template <bool has_zeros>
struct I4 : I4Record {
  using Codes = std::conditional_t<has_zeros, NibbleCodes, SignedNibbles>;
  static constexpr bool kUsesMin = false;

  using I4Record::I4Record;

  OCTAVO_INLINE svint32_t start(const uint8_t* record, int part, int32_t asum) const {
    if constexpr (!has_zeros) return svdup_s32(0);
    return svmul_n_s32_x(all(), svld1ub_vnum_s32(all(), record + zeros_at, part), -asum);
  }
  template <int N>
  OCTAVO_INLINE void scales(const uint8_t* record, int part0, const Registers<svfloat32_t>& out) const {
    const uint8_t* p = record + scales_at;
    if (flags & kScaleF16) return half_parts<N>(p, part0, out);
    if (flags & kScaleBf16) {
      steps<0, N>([&] OCTAVO_STEP(i) {
        const svuint32_t bits = svld1uh_vnum_u32(all(), reinterpret_cast<const uint16_t*>(p), part0 + i);
        out.template at<i>() = svreinterpret_f32_u32(svlsl_n_u32_x(all(), bits, 16));
      });
      return;
    }
    steps<0, N>([&] OCTAVO_STEP(i) {
      out.template at<i>() = svld1_vnum_f32(all(), reinterpret_cast<const float*>(p), part0 + i);
    });
  }
};

template <class Format, int P, int R, int N, int part0>
inline void group_parts(const LinearArgs& a, const Format& format, const TileAt& at, int64_t panel_bytes, float* sums) {
  using Codes = typename Format::Codes;
  const int64_t inputs = format.inputs(), groups = round_up(a.k, inputs) / inputs, ldx = a.ldx, lds = a.lds;
  const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * ldx;
  const float* scales = a.scales + at.row * lds;
  const int32_t* asum = a.sums + at.row * lds;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
  Ahead<1> ahead(at, record, panel_bytes);
  OCTAVO_REGISTERS(svuint8_t, masks);
  keep_masks<Codes>(masks);
  OCTAVO_REGISTERS(svfloat32_t, acc);
  steps<0, R * N>([&] OCTAVO_STEP(i) { acc.template at<i>() = svdup_f32(0.0f); });
  for (int64_t g = 0; g < groups; ++g, record += format.bytes(), ++scales, ++asum) {
    if (part0 == 0) ahead.ask(record, format.bytes());
    OCTAVO_REGISTERS(svint32_t, isum);
    steps<0, R>([&] OCTAVO_STEP(r) {
      steps<0, N>([&] OCTAVO_STEP(i) { isum.template at<r * N + i>() = format.start(record, part0 + i, asum[r * lds]); });
    });
    const uint8_t* chunk = record;
    for (int64_t i = 0; i < inputs; i += 32, x += 32, chunk += Codes::kChunk)
      add_steps<Codes, P, R, N, 0, 8>(isum, masks, chunk, part0, x, ldx);
    OCTAVO_REGISTERS(svfloat32_t, d);
    OCTAVO_REGISTERS(svfloat32_t, m);
    format.template scales<N>(record, part0, d);
    if constexpr (Format::kUsesMin) format.template mins<N>(record, part0, m);
    steps<0, R>([&] OCTAVO_STEP(r) {
      const svfloat32_t s = svdup_f32(scales[r * lds]);
      steps<0, N>([&] OCTAVO_STEP(i) {
        svint32_t sum = isum.template at<r * N + i>();
        if constexpr (Codes::kShift > 0) sum = svasr_n_s32_x(all(), sum, Codes::kShift);
        svfloat32_t& y = acc.template at<r * N + i>();
        y = svmla_f32_x(all(), y, svcvt_f32_s32_x(all(), sum), svmul_f32_x(all(), s, d.template at<i>()));
      });
      if constexpr (Format::kUsesMin) {
        const svfloat32_t sum = svdup_f32(static_cast<float>(asum[r * lds]));
        steps<0, N>([&] OCTAVO_STEP(i) {
          svfloat32_t& y = acc.template at<r * N + i>();
          y = svmla_f32_x(all(), y, sum, svmul_f32_x(all(), s, m.template at<i>()));
        });
      }
    });
  }
  steps<0, R>([&] OCTAVO_STEP(r) {
    steps<0, N>([&] OCTAVO_STEP(i) { svst1_vnum_f32(all(), sums + 16 * r, part0 + i, acc.template at<r * N + i>()); });
  });
}

template <class Format, int P>
struct GroupKernel {
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  // Sums of as many parts as fit the registers beside the inputs of all rows.
  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    constexpr int N = R > 2 && P > 2 ? 2 : P;
    const Format format(a.flags);
    alignas(64) float sums[R * 16];
    group_parts<Format, P, R, N, 0>(a, format, at, panel_bytes, sums);
    if constexpr (N < P) group_parts<Format, P, R, N, N>(a, format, at, panel_bytes, sums);
    finish_panel<R>(a, at, sums);
  }
};

template <class Format>
inline void run_grouped(const LinearArgs& a, const Step& step, const Lane& lane) {
  const Format format(a.flags);
  const int64_t inputs = format.inputs(), bytes = round_up(a.k, inputs) / inputs * format.bytes();
  with_parts([&](auto p) { run_kernel<GroupKernel<Format, p>>(a, step, lane, bytes); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS

#include "linear/grouped_ops.inl.h"
