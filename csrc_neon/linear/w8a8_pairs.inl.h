// A tile of up to four pairs of rows x a panel, for w8a8: linear_w8a8.inl.h with SMMLA. Eight outputs (with a pair or two: sixteen) are
// summed in registers.
#pragma once
#include "linear/pair_codes.inl.h"
#include "linear/pair_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// `codes`: of a part, or of two that were made ready.
template <int P, int N, bool is_ready>
[[gnu::noinline]] void w8a8_pass(const uint8_t* x, const uint8_t* codes, int64_t inputs, I (*sums)[2][P]) {
  I isum[P][2 * N];
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) isum[p][i] = sums[i / 2][i % 2][p];
  for (int64_t steps = inputs / 32; steps > 0; --steps) {
    each<0, 4>([&](auto step) __attribute__((always_inline)) {
      if constexpr (is_ready)
        add_ready<P, N>(isum, codes, x);
      else
        add_pairs<PairCodes<ByteCodes>, step, P, N>(isum, codes, 0, x);
    });
    if (!is_ready) codes += 512;
  }
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[i / 2][i % 2][p] = isum[p][i];
}

struct W8a8Pairs {
  template <int P>
  using Sums = I[4][2][P];
  static constexpr bool kSwaps = false;
  static constexpr int kInputBytes = 1, kEndVectors = 0, kSumsPerScale = 1;
  static constexpr int64_t kRunInputs = 1024;

  const LinearArgs& a;
  int64_t panel_bytes;

  static constexpr int64_t inputs() { return 64; }
  static constexpr int64_t record_bytes() { return 16 * inputs(); }
  static void end(const RowEnds (&)[2], int64_t, uint8_t*, int64_t) {}

  struct Ready {
    alignas(64) uint8_t codes[2][8 * kRunInputs];
  };

  void open(const uint8_t* record, int64_t count, bool is_ready, Ready* ready) const {
    if (!is_ready) return;
    for (int64_t i = 0; i < 64 * count; i += 32)
      make_ready<PairCodes<ByteCodes>, 2, kSwaps>(record + 16 * i, ready->codes[0] + 8 * i, sizeof ready->codes[0]);
  }

  template <int P, bool is_ready>
  void run(const uint8_t* x, const uint8_t* record, const Ready& ready, int64_t count, const Asking& asking, Sums<P>& sums) const {
    constexpr int N = P > 2 ? 2 : 4;
    for (int part = 0; part < 4; part += N) {
      asking.share(part, N);
      w8a8_pass<P, N, is_ready>(x, is_ready ? ready.codes[part / 2] : record + 16 * part, 64 * count, sums + part);
    }
  }

  template <int P>
  void finish(const TileAt& at, int64_t rows, const Sums<P>& isum) const {
    const uint8_t* end = static_cast<const uint8_t*>(a.weight) + (at.panel + 1) * panel_bytes;
    const auto* scales = reinterpret_cast<const float*>(end - tail_bytes(PackedKind::w8a8));
    F sums[4][2][P];
    for (int part = 0; part < 4; ++part) {
      F s[2];
      halves_twice(V::load(scales + 4 * part), s);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const int64_t row = at.row + 2 * p, next = 2 * p + 1 < rows ? row + 1 : row;
        const F s_a = pair_of(a.scales[row * a.lds], a.scales[next * a.lds]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) sums[part][h][p] = V::mul(V::cvt_f32(isum[part][h][p]), V::mul(s_a, s[h]));
      }
    }
    finish_pairs<P>(a, at, rows, sums);
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
