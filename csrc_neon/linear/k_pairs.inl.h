// A tile of up to four pairs of rows x a panel, for K-quants: linear_k.inl.h with SMMLA, the same sums in the same order.
//
// Codes of two and three bits take their sub-scale before they are multiplied: the product fits a byte (packed/planes.h, kFolds). Minima
// of 8 sub-blocks are one vector's inputs: SMMLA sums their products with the sums of the rows, of which the low seven bits and what
// lies above are each a byte.
#pragma once
#include "linear/pair_codes.inl.h"
#include "linear/pair_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Vectors of 8 minima of two outputs each, [outputs / 2][sub-blocks / 8], from [sub-blocks][16].
template <class L>
inline void pair_mins(const uint8_t* record, Bytes (&out)[8][32 / L::kGroup]) {
#pragma GCC unroll 2
  for (int half = 0; half < 32 / L::kGroup; ++half) {
    Bits v[8], w[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      v[i] = vld1q_u8(record + (L::kPairs ? L::kScalesAt : L::kMinsAt) + 16 * (8 * half + i));
      if (L::kPairs) v[i] = vshrq_n_u8(v[i], 4);
    }
#pragma GCC unroll 3
    for (int turn = 0; turn < 3; ++turn) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) w[2 * i] = vzip1q_u8(v[i], v[i + 4]), w[2 * i + 1] = vzip2q_u8(v[i], v[i + 4]);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) v[i] = w[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) out[i][half] = vreinterpretq_s8_u8(v[i]);
  }
}

// Sums of 8 sub-blocks of a row, in two bytes each: 128 * high + low.
template <int group>
OCTAVO_INLINE void split_sums(const int32_t* sums, int8x8_t* high, int8x8_t* low) {
  int32x4_t a = vld1q_s32(sums), b = vld1q_s32(sums + 4);
  if (group == 32) a = vpaddq_s32(a, b), b = vpaddq_s32(vld1q_s32(sums + 8), vld1q_s32(sums + 12));
  const int16x8_t both = vcombine_s16(vmovn_s32(a), vmovn_s32(b)), top = vrshrq_n_s16(both, 7);
  *high = vmovn_s16(top);
  *low = vmovn_s16(vsubq_s16(both, vshlq_n_s16(top, 7)));
}

// Where the sub-scales of outputs `output` and the next stand among those of a panel: for the dwords of a vector, twice each, or
// (where they are folded) for its bytes. Signed ones come to the top of a dword.
template <class L>
OCTAVO_INLINE Bits scale_lanes(int output) {
  constexpr uint64_t kFirst = L::kSigned ? 0x0180808000808080u : 0x8080800180808000u;  // 80: none, a zero
  const Bits lanes = L::kFolds ? vcombine_u8(vcreate_u8(0), vcreate_u8(0x0101010101010101u))
                               : vcombine_u8(vcreate_u8(kFirst), vcreate_u8(kFirst));
  return vaddq_u8(lanes, all_bits(output));
}

// The sub-scales of a sub-block for the codes of C vectors; negative where they are signed (packed/planes.h, kFolds).
template <class L, int C>
OCTAVO_INLINE void fold_scales(const uint8_t* scales, const Bits (&lanes)[C], Bytes (&out)[C]) {
  Bits all = vld1q_u8(scales);
  if (L::kPairs) all = vandq_u8(all, all_bits(15));
#pragma GCC unroll 8
  for (int i = 0; i < C; ++i) {
    out[i] = vreinterpretq_s8_u8(vqtbl1q_u8(all, lanes[i]));
    if (L::kSigned) out[i] = vnegq_s8(out[i]);
  }
}

template <class L, int P, int N>
OCTAVO_INLINE void folded_products(I (&isum)[P][2 * N], const uint8_t* record, const Bits (&lanes)[2 * N], int part,
                                   const uint8_t*& x) {
  using Pairs = PairCodes<typename L::Codes>;
  const uint8_t* scales = record + L::kScalesAt;
#pragma GCC unroll 1
  for (int chunk = 0; chunk < 8; ++chunk, record += Pairs::kChunk, scales += 32)
    each<0, 2>([&](auto run) __attribute__((always_inline)) {
      Bytes scale[2 * N];
      fold_scales<L, 2 * N>(scales + 16 * run, lanes, scale);
      each<2 * run, 2 * run + 2>([&](auto step) __attribute__((always_inline)) {
        add_pairs<Pairs, step, P, N>(isum, record, part, x, [&](Bytes w, int i) __attribute__((always_inline)) {
          return vmulq_s8(w, scale[i]);
        });
      });
    });
}

template <class L, int P, int N, bool is_ready>
OCTAVO_INLINE void scaled_products(I (&isum)[P][2 * N], const uint8_t* record, const uint8_t* ready, const Bits (&lanes)[2 * N],
                                   int part, const uint8_t*& x) {
  using Pairs = PairCodes<typename L::Codes>;
  constexpr int kRuns = 32 / L::kGroup, kSteps = L::kGroup / 8;
  const uint8_t* scales = record + L::kScalesAt;
#pragma GCC unroll 1
  for (int chunk = 0; chunk < 8; ++chunk, record += Pairs::kChunk, scales += 16 * kRuns)
    each<0, kRuns>([&](auto run) __attribute__((always_inline)) {
      I sum[P][2 * N];
#pragma GCC unroll 8
      for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[p][i] = vdupq_n_s32(0);
      each<kSteps * run, kSteps * (run + 1)>([&](auto n) __attribute__((always_inline)) {
        constexpr int step = kSteps == 4 ? n / 2 + n % 2 * 2 : n;
        if constexpr (is_ready)
          add_ready<P, N>(sum, ready, x);
        else
          add_pairs<Pairs, step, P, N>(sum, record, part, x);
      });
      const Bits all = vld1q_u8(scales + 16 * run);
#pragma GCC unroll 8
      for (int i = 0; i < 2 * N; ++i) {
        I scale = vreinterpretq_s32_u8(vqtbl1q_u8(all, lanes[i]));
        if (L::kSigned) scale = vshrq_n_s32(scale, 24);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) isum[p][i] = vmlaq_s32(isum[p][i], sum[p][i], scale);
      }
    });
}

// `ready`: the part's codes, or null where they are taken from the record.
template <class L, int P, int N, bool is_ready>
[[gnu::noinline]] void k_pass(const uint8_t* x, const uint8_t* record, const uint8_t* ready, int part,
                              const Bytes (*mins)[32 / L::kGroup], F (*sums)[2][P]) {
  using Pairs = PairCodes<typename L::Codes>;
  constexpr int kMinVectors = 32 / L::kGroup;
  I isum[P][2 * N];
  Bits lanes[2 * N];
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i) {
    lanes[i] = scale_lanes<L>(4 * part + 2 * i);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) isum[p][i] = vdupq_n_s32(0);
  }
  if constexpr (L::kFolds && is_ready) {
#pragma GCC unroll 1
    for (int chunk = 0; chunk < 8; ++chunk)
      each<0, 4>([&](auto) __attribute__((always_inline)) { add_ready<P, N>(isum, ready, x); });
  } else if constexpr (L::kFolds) {
    folded_products<L, P, N>(isum, record, lanes, part, x);
  } else {
    scaled_products<L, P, N, is_ready>(isum, record, ready, lanes, part, x);
  }
  F d[2 * N], acc[P][2 * N];
  half_pairs<N>(record + L::kHalvesAt + 8 * part, d);
  const PairVectors<P> s(x);
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const F sum = pairs_to_float<Pairs>(isum[p][i]), scale = V::mul(s.floats(p), d[i]), before = sums[i / 2][i % 2][p];
      acc[p][i] = L::kFolds && L::kSigned ? vfmsq_f32(before, sum, scale) : V::fma(sum, scale, before);
    }
  if constexpr (L::kMin) {
    half_pairs<N>(record + L::kHalvesAt + 32 + 8 * part, d);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const auto* rows = reinterpret_cast<const int8_t*>(x + 16 * p);
        I sum = vdupq_n_s32(0);
#pragma GCC unroll 2
        for (int v = 0; v < kMinVectors; ++v) sum = vmmlaq_s32(sum, vld1q_s8(rows + 16 * P * v), mins[i][v]);
        sum = vshlq_n_s32(sum, 7);
#pragma GCC unroll 2
        for (int v = 0; v < kMinVectors; ++v) sum = vmmlaq_s32(sum, vld1q_s8(rows + 16 * P * (kMinVectors + v)), mins[i][v]);
        acc[p][i] = vfmsq_f32(acc[p][i], V::cvt_f32(sum), V::mul(s.floats(p), d[i]));
      }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[i / 2][i % 2][p] = acc[p][i];
}

template <class L>
struct KPairs {
  template <int P>
  using Sums = F[4][2][P];
  static constexpr int64_t kRunInputs = 256;
  static constexpr bool kSwaps = L::kGroup == 32;
  static constexpr int kInputBytes = 1, kMinVectors = 32 / L::kGroup, kEndVectors = 1 + (L::kMin ? 2 * kMinVectors : 0), kSumsPerScale = 16;

  const LinearArgs& a;
  int64_t panel_bytes;

  static constexpr int64_t inputs() { return 256; }
  static constexpr int64_t record_bytes() { return L::kBytes; }

  static OCTAVO_INLINE void end(const RowEnds (&rows)[2], int64_t block, uint8_t* at, int64_t stride) {
    V::store(reinterpret_cast<float*>(at), pair_of(rows[0].scales[block], rows[1].scales[block]));
    if constexpr (L::kMin)
      for (int v = 0; v < kMinVectors; ++v) {
        int8x8_t high[2], low[2];
        for (int i = 0; i < 2; ++i) split_sums<L::kGroup>(rows[i].sums + 16 * block + 8 * v, &high[i], &low[i]);
        vst1q_s8(reinterpret_cast<int8_t*>(at + (1 + v) * stride), vcombine_s8(high[0], high[1]));
        vst1q_s8(reinterpret_cast<int8_t*>(at + (1 + kMinVectors + v) * stride), vcombine_s8(low[0], low[1]));
      }
  }

  struct Ready {
    alignas(64) uint8_t codes[4][4 * kRunInputs];
    Bytes mins[8][kMinVectors];
  };

  void open(const uint8_t* record, int64_t, bool is_ready, Ready* ready) const {
    using Pairs = PairCodes<typename L::Codes>;
    constexpr int64_t kStride = sizeof ready->codes[0];
    if constexpr (L::kMin) pair_mins<L>(record, ready->mins);
    if (!is_ready) return;
    const uint8_t* scales = record + L::kScalesAt;
    for (int chunk = 0; chunk < 8; ++chunk, record += Pairs::kChunk, scales += 32) {
      uint8_t* to = ready->codes[0] + 128 * chunk;
      if constexpr (L::kFolds) {
        Bits lanes[8];
        Bytes scale[2][8];
        for (int i = 0; i < 8; ++i) lanes[i] = scale_lanes<L>(2 * i);
        for (int half = 0; half < 2; ++half) fold_scales<L, 8>(scales + 16 * half, lanes, scale[half]);
        make_ready<Pairs, 1, kSwaps>(record, to, kStride, [&](Bytes w, int step, int i) __attribute__((always_inline)) {
          return vmulq_s8(w, scale[step / 2][i]);
        });
      } else {
        make_ready<Pairs, 1, kSwaps>(record, to, kStride);
      }
    }
  }

  template <int P, bool is_ready>
  void run(const uint8_t* x, const uint8_t* record, const Ready& ready, int64_t, const Asking& asking, Sums<P>& sums) const {
    constexpr int N = P > 2 ? 1 : 2;
    for (int part = 0; part < 4; part += N) {
      asking.share(part, N);
      k_pass<L, P, N, is_ready>(x, record, ready.codes[part], part, ready.mins + 2 * part, sums + part);
    }
  }

  template <int P>
  void finish(const TileAt& at, int64_t rows, const Sums<P>& sums) const {
    finish_pairs<P>(a, at, rows, sums);
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
