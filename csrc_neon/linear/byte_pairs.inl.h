// A tile of up to four pairs of rows x a panel of weights that are multiplied as they lie: int8 codes of w8a8 by SMMLA, bfloat16 by BFMMLA.
// To the walk both are records of 64 bytes of a row and 1,024 of a panel. Eight outputs (with a pair or two: sixteen) are summed in
// registers.
#pragma once
#include "linear/pair_codes.inl.h"
#include "linear/pair_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// `weights`: of a part, or of two that were made ready.
template <int P, int N, bool is_ready, class Sum>
[[gnu::noinline]] void bytes_pass(const uint8_t* x, const uint8_t* weights, int64_t records, Sum (*sums)[2][P]) {
  Sum sum[P][2 * N];
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[p][i] = sums[i / 2][i % 2][p];
  for (int64_t halves = 2 * records; halves > 0; --halves) {
    each<0, 4>([&](auto step) __attribute__((always_inline)) {
      if constexpr (is_ready)
        add_ready<P, N>(sum, weights, x);
      else
        add_pairs<PairCodes<ByteCodes>, step, P, N>(sum, weights, 0, x);
    });
    if (!is_ready) weights += 512;
  }
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[i / 2][i % 2][p] = sum[p][i];
}

template <class Sum, int input_bytes>
struct BytePairs {
  template <int P>
  using Sums = Sum[4][2][P];
  static constexpr bool kSwaps = false;
  static constexpr int kInputBytes = input_bytes, kEndVectors = 0, kSumsPerScale = 1;
  static constexpr int64_t kRunBytes = 1024, kRunInputs = kRunBytes / input_bytes;

  const LinearArgs& a;
  int64_t panel_bytes;

  static constexpr int64_t inputs() { return 64 / input_bytes; }
  static constexpr int64_t record_bytes() { return 1024; }
  static void end(const RowEnds (&)[2], int64_t, uint8_t*, int64_t) {}

  struct Ready {
    alignas(64) uint8_t weights[2][8 * kRunBytes];
  };

  void open(const uint8_t* record, int64_t count, bool is_ready, Ready* ready) const {
    if (!is_ready) return;
    for (int64_t i = 0; i < 64 * count; i += 32)
      make_ready<PairCodes<ByteCodes>, 2, kSwaps>(record + 16 * i, ready->weights[0] + 8 * i, sizeof ready->weights[0]);
  }

  template <int P, bool is_ready>
  void run(const uint8_t* x, const uint8_t* record, const Ready& ready, int64_t count, const Asking& asking, Sums<P>& sums) const {
    constexpr int N = P > 2 ? 2 : 4;
    for (int part = 0; part < 4; part += N) {
      asking.share(part, N);
      bytes_pass<P, N, is_ready>(x, is_ready ? ready.weights[part / 2] : record + 16 * part, count, sums + part);
    }
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
