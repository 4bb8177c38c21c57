// A tile of up to four pairs of rows x a panel, for weights in groups: group_tile.inl.h with SMMLA, the same sums in the same order.
// Four outputs after the other (with two pairs: eight, with one: all) are summed in registers.
#pragma once
#include "linear/pair_codes.inl.h"
#include "linear/pair_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// `ready`: the part's codes, or null where they are taken from the records.
template <class Format, int P, int N, bool is_ready>
[[gnu::noinline]] void group_pass(const Format& format, const uint8_t* x, const uint8_t* record, const uint8_t* ready, int64_t groups,
                                  int part, F (*sums)[2][P]) {
  using Pairs = PairCodes<typename Format::Codes>;
  F acc[P][2 * N];
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) acc[p][i] = sums[i / 2][i % 2][p];
  int64_t to_ends = -8 * part;  // from codes of a part to its halves, of which each is half as long
  hide(to_ends);
  for (const uint8_t* codes = record + 16 * part; groups > 0; --groups, codes += format.bytes()) {
    const int64_t inputs = format.inputs();
    I isum[P][2 * N];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      I asum = vdupq_n_s32(0);
      if constexpr (Format::kUsesSums) asum = vld1q_s32(reinterpret_cast<const int32_t*>(x + 2 * P * inputs + 16 * (P + p)));
#pragma GCC unroll 8
      for (int i = 0; i < 2 * N; ++i) isum[p][i] = format.start_pair(codes - 16 * part, 2 * part + i, asum);
    }
    const uint8_t* chunk = codes;
    for (int64_t i = 0; i < inputs; i += 32, chunk += Pairs::kChunk) {
      each<0, 4>([&](auto n) __attribute__((always_inline)) {
        if constexpr (is_ready)
          add_ready<P, N>(isum, ready, x);
        else
          add_pairs<Pairs, n / 2 + n % 2 * 2, P, N>(isum, chunk, 0, x);
      });
    }
    F d[2 * N], m[2 * N];
    format.template scale_pairs<N>(codes, to_ends, d);
    if constexpr (Format::kUsesMin) format.template min_pairs<N>(codes, to_ends, m);
    const PairVectors<P> s(x);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
      for (int i = 0; i < 2 * N; ++i)
        acc[p][i] = V::fma(pairs_to_float<Pairs>(isum[p][i]), V::mul(s.floats(p), d[i]), acc[p][i]);
    if constexpr (Format::kUsesMin) {
      const PairVectors<P> asum(x);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
        for (int i = 0; i < 2 * N; ++i) acc[p][i] = V::fma(asum.floats(p), V::mul(s.floats(p), m[i]), acc[p][i]);
    } else if constexpr (Format::kUsesSums) {
      x += 16 * P;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[i / 2][i % 2][p] = acc[p][i];
}

template <class Format>
struct GroupPairs {
  template <int P>
  using Sums = F[4][2][P];
  static constexpr int64_t kRunInputs = 512;
  static constexpr bool kSwaps = true;
  static constexpr int kInputBytes = 1, kEndVectors = Format::kUsesSums ? 2 : 1, kSumsPerScale = 1;

  const LinearArgs& a;
  Format format;
  int64_t panel_bytes;

  int64_t inputs() const { return format.inputs(); }
  int64_t record_bytes() const { return format.bytes(); }

  static OCTAVO_INLINE void end(const RowEnds (&rows)[2], int64_t group, uint8_t* at, int64_t stride) {
    V::store(reinterpret_cast<float*>(at), pair_of(rows[0].scales[group], rows[1].scales[group]));
    if constexpr (Format::kUsesSums)
      vst1q_s32(reinterpret_cast<int32_t*>(at + stride), Format::staged_sum(pair_of(rows[0].sums[group], rows[1].sums[group])));
  }

  struct Ready {
    alignas(64) uint8_t codes[4][4 * kRunInputs];
  };

  void open(const uint8_t* record, int64_t count, bool is_ready, Ready* ready) const {
    if (!is_ready) return;
    uint8_t* to = ready->codes[0];
    for (int64_t r = 0; r < count; ++r, record += format.bytes()) {
      const uint8_t* chunk = record;
      for (int64_t i = 0; i < inputs(); i += 32, chunk += Format::Codes::kChunk, to += 128)
        make_ready<PairCodes<typename Format::Codes>, 1, kSwaps>(chunk, to, sizeof ready->codes[0]);
    }
  }

  template <int P, bool is_ready>
  void run(const uint8_t* x, const uint8_t* record, const Ready& ready, int64_t count, const Asking& asking, Sums<P>& sums) const {
    constexpr int N = P > 2 ? 1 : 4 / P;
    for (int part = 0; part < 4; part += N) {
      asking.share(part, N);
      group_pass<Format, P, N, is_ready>(format, x, record, ready.codes[part], count, part, sums + part);
    }
  }

  template <int P>
  void finish(const TileAt& at, int64_t rows, const Sums<P>& sums) const {
    finish_pairs<P>(a, at, rows, sums);
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
