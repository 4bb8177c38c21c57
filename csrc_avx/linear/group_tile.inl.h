// A tile of R rows x C panels of weights in groups with a float scale each, shared by q4g32, q8g32 and i4.
//
// Per group, in order: acc = fma(float(isum), s_a * scale, acc), with a minimum then acc = fma(float(asum), s_a * min, acc). isum is
// exact in int32, so that every level agrees. Integer and float sums stay in registers for all groups; codes are unpacked once
// for R rows, inputs broadcast once for C panels. With VNNI eight products of 32 inputs and two float operations take the
// multipliers ten turns: the tile runs close to that bound.
//
// A Format, made from the flags of the layout, says what a group is:
//   inputs(), bytes()        of a group's record, whose codes come in chunks of 32 inputs, kChunk bytes of a panel
//   codes(chunk, step)       bytes of inputs 4 * step .. 4 * step + 3 of a chunk, of one part of a panel
//   step(sum, codes, x)      sum plus their products
//   kIsOneChunk            groups have no more than that
//   kIsNarrow                `step` makes sums of a chunk that are to be widened
//   start(record, part, asum)  what isum starts from; asum is read from memory by a broadcast, which takes no multiplier's turn
//   scale(record, part), kUsesMin, min(record, part)
#pragma once
#include "linear/bytes.inl.h"
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

#define OCTAVO_INLINE __attribute__((always_inline)) inline

template <class Format, int R, int C>
struct GroupSums {
  static constexpr int kVectors = C * kParts;
  I v[R][kVectors];

  template <class Start>
  OCTAVO_INLINE void start(Start&& start) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) v[r][i] = start(r, i);
  }

  // Plus the products of steps [first, last) of a chunk with x, of the first row. `between(n)` is done before step n.
  template <class Between>
  OCTAVO_INLINE void products(int first, int last, const uint8_t* chunk, int64_t panel_bytes, const int8_t* x, int64_t ldx,
                              Between&& between) {
#pragma GCC unroll 8
    for (int n = first; n < last; ++n) {
      between(n);
      // The two nibbles of a byte one after the other, but where registers carry the bytes of four steps or none.
      const int step = kVnni && Format::kIsOneChunk ? n : n / 2 + n % 2 * 4;
      I codes[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i)
        codes[i] = Format::codes(chunk + i / kParts * panel_bytes + i % kParts * 4 * V::kLanes, step);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const I in = inputs_at(x + r * ldx + 4 * step);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) v[r][i] = Format::step(v[r][i], codes[i], in);
      }
    }
  }

  OCTAVO_INLINE void add(const GroupSums& other) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) v[r][i] = V::iadd(v[r][i], Format::kIsNarrow ? widen_sum(other.v[r][i]) : other.v[r][i]);
  }

  // Plus a chunk. Few sums: its halves go side by side, so that the latency of a product does not show.
  template <class Between>
  OCTAVO_INLINE void chunk(const uint8_t* codes, int64_t panel_bytes, const int8_t* x, int64_t ldx, Between&& between) {
    const auto zero = [](int, int) { return V::ibroadcast(0); };
    GroupSums more;
    if constexpr (!kVnni && Format::kIsNarrow) {
      more.start(zero);
      more.products(0, 8, codes, panel_bytes, x, ldx, between);
      add(more);
    } else if constexpr (R * kVectors <= 4) {
      more.start(zero);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        products(n, n + 1, codes, panel_bytes, x, ldx, between);
        more.products(n + 4, n + 5, codes, panel_bytes, x, ldx, between);
      }
      add(more);
    } else {
      products(0, 8, codes, panel_bytes, x, ldx, between);
    }
  }
};

template <class Format, int R, int C>
inline void group_tile(const LinearArgs& a, const TileAt& at, int64_t panel_bytes) {
  constexpr int kVectors = C * kParts;
  const Format format(a.flags);
  const int64_t inputs = format.inputs(), groups = round_up(a.k, inputs) / inputs, ldx = a.ldx, lds = a.lds;
  const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * ldx;
  const float* scales = a.scales + at.row * lds;
  const int32_t* asum = a.sums + at.row * lds;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
  Ahead<C> ahead(at, record, panel_bytes);
  F acc[R][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) acc[r][i] = V::zero();
  for (int64_t g = 0; g < groups; ++g, record += format.bytes(), ++scales, ++asum) {
    ahead.aim(record);
    const auto part_of = [&](int i) { return record + i / kParts * panel_bytes; };
    GroupSums<Format, R, C> isum;
    isum.start([&](int r, int i) { return format.start(part_of(i), i % kParts, asum + r * lds); });
    constexpr int64_t kLines = Format::kChunk / 64;  // of a chunk, asked for one by one: all at once would hold up the loads behind them
    for (int64_t i = 0; i < inputs; i += 32, x += 32)
      isum.chunk(record + i / 32 * Format::kChunk, panel_bytes, x, ldx, [&](int n) __attribute__((always_inline)) {
        if (n % (8 / kLines) == 0) ahead.ask(i / 32 * Format::kChunk + n / (8 / kLines) * 64);
      });
    for (int64_t at = inputs / 32 * Format::kChunk; at < format.bytes(); at += 64) ahead.ask(at);
    F d[kVectors], m[kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      d[i] = format.scale(part_of(i), i % kParts);
      if constexpr (Format::kUsesMin) m[i] = format.min(part_of(i), i % kParts);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F s = V::broadcast(scales[r * lds]);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) acc[r][i] = V::fma(V::cvt_f32(isum.v[r][i]), V::mul(s, d[i]), acc[r][i]);
      if constexpr (Format::kUsesMin) {
        const F sum = V::cvt_f32(V::ibroadcast(asum[r * lds]));
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) acc[r][i] = V::fma(sum, V::mul(s, m[i]), acc[r][i]);
      }
    }
  }
  alignas(64) float sums[R * C * 16];  // through memory: taken out of registers in a loop, they would be kept in memory above
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) V::store(sums + (r * kVectors + i) * V::kLanes, acc[r][i]);
  finish_tile<V, R, C>(a, at.row, at.panel * kPanel, sums);
}

// Rows and panels of a full tile: as many integer and float sums as registers carry beside the codes of a step.
template <class Format>
struct GroupKernel {
  static constexpr int kRows = V::kLanes == 16 || (kVnni && Format::kIsOneChunk) ? 6 : 4, kPanels = V::kLanes == 16 ? 2 : 1,
                       kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  void tile(const TileAt& at) const {
    group_tile<Format, R, C>(a, at, panel_bytes);
  }
};

template <class Format>
inline void run_groups(const LinearArgs& a, const Step& step, const Lane& lane) {
  const Format format(a.flags);
  const int64_t inputs = format.inputs();
  run_kernel<GroupKernel<Format>>(a, step, lane, round_up(a.k, inputs) / inputs * format.bytes());
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
