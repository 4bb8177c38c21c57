// A tile of R rows x a panel of weights in groups with a float scale each: q4g32, q8g32, q5g32 and i4.
//
// Per group, in order: acc = fma(float(isum), s_a * scale, acc), with a minimum then acc = fma(float(asum), s_a * min, acc). isum is
// exact in int32, so that every level agrees. With three rows and more half a panel at a time, so that integer and float sums stay
// in registers beside the inputs of all rows.
//
// A Format, made from the flags of the layout: Codes; inputs(), bytes() of a group's record; start(record, part, asum), what isum
// starts from; scales(record, out) and, where kUsesMin, mins(record, out), of 16 outputs.
#pragma once
#include "linear/codes.inl.h"
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kTileRows = 4;

template <class Format, int R, int N, int part0>
[[gnu::noinline]] void group_half(const LinearArgs& a, const Format& format, const TileAt& at, int64_t panel_bytes, float* sums) {
  using Codes = typename Format::Codes;
  const int64_t inputs = format.inputs(), groups = round_up(a.k, inputs) / inputs, ldx = a.ldx, lds = a.lds;
  const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * ldx;
  const float* scales = a.scales + at.row * lds;
  const int32_t* asum = a.sums + at.row * lds;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
  Ahead<1> ahead(at, record, panel_bytes);
  F acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) acc[r][i] = V::zero();
  for (int64_t g = 0; g < groups; ++g, record += format.bytes(), ++scales, ++asum) {
    if (part0 == 0) ahead.ask(record, format.bytes());
    Ints<R, N> isum;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) isum.v[r][i] = format.start(record, part0 + i, asum[r * lds]);
    const uint8_t* chunk = record;
    for (int64_t i = 0; i < inputs; i += 32, x += 32, chunk += Codes::kChunk) add_chunk<Codes>(&isum, chunk, part0, x, ldx);
    F d[4], m[4];
    format.scales(record, d);
    if constexpr (Format::kUsesMin) format.mins(record, m);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F s = V::broadcast(scales[r * lds]);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[r][i] = V::fma(to_float<Codes>(isum.v[r][i]), V::mul(s, d[part0 + i]), acc[r][i]);
      if constexpr (Format::kUsesMin) {
        const F sum = V::cvt_f32(V::ibroadcast(asum[r * lds]));
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) acc[r][i] = V::fma(sum, V::mul(s, m[part0 + i]), acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) V::store(sums + 16 * r + 4 * (part0 + i), acc[r][i]);
}

template <class Format, int rows>
struct GroupKernel {
  static constexpr int kRows = rows, kPanels = 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    const Format format(a.flags);
    alignas(16) float sums[R * 16];
    if constexpr (R > 2) {
      group_half<Format, R, 2, 0>(a, format, at, panel_bytes, sums);
      group_half<Format, R, 2, 2>(a, format, at, panel_bytes, sums);
    } else {
      group_half<Format, R, 4, 0>(a, format, at, panel_bytes, sums);
    }
    finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, sums);
  }
};

template <class Format, int rows>
inline void run_groups(const LinearArgs& a, const Step& step, const Lane& lane) {
  const Format format(a.flags);
  const int64_t inputs = format.inputs();
  run_kernel<GroupKernel<Format, rows>>(a, step, lane, round_up(a.k, inputs) / inputs * format.bytes());
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
