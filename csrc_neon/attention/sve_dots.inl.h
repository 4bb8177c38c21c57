// dot32 of many float32 rows with one block of 32 k-values by vectors of SVE; arithmetic and order as in attention/dot32.inl.h.
//
// Chains of up to four rows are in registers together. Pairs are multiplied as they lie: even and odd elements take turns in a vector,
// a row's two values are copied to every two lanes, and only the sums of a block are taken apart. Lanes beyond the last are left
// out by a predicate. Where widening takes instructions of its own, a block is widened once for many rows.
// With FEAT_BF16 BFMLALB and BFMLALT take pairs of bfloat16; rows, rounded to bfloat16, hold it in each upper half.
#pragma once
#include "attention/dot32.inl.h"
#include "sve/vectors.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Elements of T as float32, in two steps: `load` gives vector `v` of those at `at`, one in each lane; `widen` puts floats made of it,
// exactly, into y. What y was counts as read: so the instruction stays behind all that reads it.
template <class T>
struct Elements;

template <>
struct Elements<float> {
  static constexpr bool kWidens = false;
  static OCTAVO_INLINE svfloat32_t load(svbool_t active, const float* at, int v) { return svld1_vnum_f32(active, at, v); }
  static OCTAVO_INLINE void widen(svfloat32_t& y, svfloat32_t x) { y = x; }
};
template <>
struct Elements<BF16> {
  static constexpr bool kWidens = true;
  static OCTAVO_INLINE svuint32_t load(svbool_t active, const BF16* at, int v) {
    return svld1uh_vnum_u32(active, reinterpret_cast<const uint16_t*>(at), v);
  }
  static OCTAVO_INLINE void widen(svfloat32_t& y, svuint32_t x) { asm("lsl %0.s, %1.s, #16" : "+w"(y) : "w"(x)); }
};
template <>
struct Elements<F16> {
  static constexpr bool kWidens = true;
  static OCTAVO_INLINE svuint32_t load(svbool_t active, const F16* at, int v) {
    return svld1uh_vnum_u32(active, reinterpret_cast<const uint16_t*>(at), v);
  }
  static OCTAVO_INLINE void widen(svfloat32_t& y, svuint32_t x) {
    asm("fcvt %0.s, %2/m, %1.h" : "+w"(y) : "w"(x), "Upl"(all()));
  }
};
template <>
struct Elements<int8_t> {
  static constexpr bool kWidens = true;
  static OCTAVO_INLINE svint32_t load(svbool_t active, const int8_t* at, int v) { return svld1sb_vnum_s32(active, at, v); }
  static OCTAVO_INLINE void widen(svfloat32_t& y, svint32_t x) {
    asm("scvtf %0.s, %2/m, %1.s" : "+w"(y) : "w"(x), "Upl"(all()));
  }
};
template <>
struct Elements<E4M3> {  // bits moved to where float16 has them are 2^-8 of the number
  static constexpr bool kWidens = true;
  static OCTAVO_INLINE svint32_t load(svbool_t active, const E4M3* at, int v) {
    const svint32_t codes = svld1sb_vnum_s32(active, reinterpret_cast<const int8_t*>(at), v);
    return svbic_n_s32_x(all(), svlsl_n_s32_x(all(), codes, 7), 0x4000);
  }
  static OCTAVO_INLINE void widen(svfloat32_t& y, svint32_t x) {
    asm("fcvt %0.s, %2/m, %1.h" : "+w"(y) : "w"(x), "Upl"(all()));
    y = svmul_n_f32_x(all(), y, 256.0f);
  }
};

// Even and odd lanes' predicates for two vectors that hold pairs of `active` lanes.
OCTAVO_INLINE svbool_t for_pairs(svbool_t active, int v) {
  return v % 2 ? svzip2_b32(active, active) : svzip1_b32(active, active);
}

// A source of weights has kVectors<N> vectors for a pair's N vectors of lanes: load(i, active, v) is one of pair i, not yet widened,
// add<R, N, v> its products with R rows' values. Sums of even elements are sum[r * 2 N] to sum[r * 2 N + N - 1] and those of odd ones follow; where
// elements take turns, so do the sums.
struct InTurns {
  static constexpr bool kTakesTurns = true;
  template <int N>
  static constexpr int kVectors = 2 * N;
  template <int R, int N, int v>
  static OCTAVO_INLINE void add(const Registers<svfloat32_t>& sum, svfloat32_t w, const Registers<svfloat32_t>& in) {
    steps<0, R>([&] OCTAVO_STEP(r) {
      svfloat32_t& y = sum.template at<r * 2 * N + v>();
      y = svmla_f32_x(all(), y, w, in.template at<r>());
    });
  }
};

// Pair rows as they lie, from a lane on.
template <class T>
struct InPlace : InTurns, Elements<T> {
  static constexpr int64_t kUnpackRows = std::is_same_v<T, float> ? INT64_MAX : 8;
  const T* at;
  int64_t stride;
  OCTAVO_INLINE InPlace(const T* first, int64_t between) : at(first), stride(between) {}
  OCTAVO_INLINE auto load(int64_t i, svbool_t active, int v) const {
    return Elements<T>::load(for_pairs(active, v), at + i * stride, v);
  }
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
struct InPlace<BF16> : Elements<float> {
  static constexpr bool kTakesTurns = false;
  static constexpr int64_t kUnpackRows = INT64_MAX;
  template <int N>
  static constexpr int kVectors = N;
  const BF16* at;
  int64_t stride;
  OCTAVO_INLINE InPlace(const BF16* first, int64_t between) : at(first), stride(between) {}
  OCTAVO_INLINE svfloat32_t load(int64_t i, svbool_t active, int v) const {
    return svld1_vnum_f32(active, reinterpret_cast<const float*>(at + i * stride), v);
  }
  template <int R, int N, int v>
  static OCTAVO_INLINE void add(const Registers<svfloat32_t>& sum, svfloat32_t w, const Registers<svfloat32_t>& in) {
    const svbfloat16_t pairs = svreinterpret_bf16_f32(w);
    steps<0, R>([&] OCTAVO_STEP(r) {
      const svbfloat16_t x = svreinterpret_bf16_f32(in.template at<r>());
      fma_lane_low<r, 1>(sum.template at<r * 2 * N + v>(), pairs, x);
      fma_lane_high<r, 3>(sum.template at<r * 2 * N + N + v>(), pairs, x);
    });
  }
};
#endif

// Even and odd elements in rows of their own, from a lane on.
template <int N_>
struct InPlanes : Elements<float> {
  static constexpr bool kTakesTurns = false;
  template <int N>
  static constexpr int kVectors = 2 * N;
  Planes view;
  explicit OCTAVO_INLINE InPlanes(const Planes& planes) : view(planes) {}
  OCTAVO_INLINE svfloat32_t load(int64_t i, svbool_t active, int v) const {
    return svld1_vnum_f32(active, (v < N_ ? view.even : view.odd) + i * view.stride, v % N_);
  }
  template <int R, int N, int v>
  static OCTAVO_INLINE void add(const Registers<svfloat32_t>& sum, svfloat32_t w, const Registers<svfloat32_t>& in) {
    steps<0, R>([&] OCTAVO_STEP(r) { fma_lane<r, v / N>(sum.template at<r * 2 * N + v>(), w, in.template at<r>()); });
  }
};

struct TwoValues {
  float first, second;
};

// Two values, in every two lanes. Written out: compilers take a detour by the integer registers.
OCTAVO_INLINE svfloat32_t two_values(const float* x) {
  svfloat32_t both;
  asm("ld1rd {%0.d}, %1/z, %2" : "=w"(both) : "Upl"(all()), "Q"(*reinterpret_cast<const TwoValues*>(x)));
  return both;
}

// R rows from `row` on x N vectors from `lane` on. The next pair's weights are loaded, and widened, beside the products of this one.
template <int R, int N, bool is_full, class Source>
inline void dot_tile(const RowBlock& b, const Source& source, int64_t row, int64_t lane, svbool_t active) {
  constexpr int kVectors = Source::template kVectors<N>;
  const int64_t pairs = is_full ? kBlockPairs : b.pairs, lda = b.lda;
  const float* x = b.a + row * lda;
  OCTAVO_REGISTERS(svfloat32_t, sum);
  OCTAVO_REGISTERS(svfloat32_t, w);
  steps<0, R * 2 * N>([&] OCTAVO_STEP(i) { sum.template at<i>() = svdup_f32(0.0f); });
  steps<0, kVectors>([&] OCTAVO_STEP(v) {
    w.template at<v>() = svundef_f32();
    Source::widen(w.template at<v>(), source.load(0, active, v));
  });
  const auto add = [&](auto then) __attribute__((always_inline)) {
    OCTAVO_REGISTERS(svfloat32_t, in);
    steps<0, R>([&] OCTAVO_STEP(r) { in.template at<r>() = two_values(x + r * lda); });
    steps<0, kVectors>([&] OCTAVO_STEP(v) {
      Source::template add<R, N, v>(sum, w.template at<v>(), in);
      then(v);
    });
  };
#pragma GCC unroll 1
  for (int64_t i = 1; i < pairs; ++i, x += 2)
    add([&] OCTAVO_STEP(v) {
      svfloat32_t& y = w.template at<v>();
      Source::widen(y, source.load(i, active, v));
      // To a compiler the next products wait for it: at the end of the loop, where it would go, it would hold all products up.
      if constexpr (Source::kWidens && v + 1 < kVectors) asm("" : "+w"(w.template at<v + 1>()) : "w"(y));
    });
  add([](auto) __attribute__((always_inline)) {});
  steps<0, R>([&] OCTAVO_STEP(r) {
    float* out = b.out + (row + r) * b.ldo + lane;
    steps<0, N>([&] OCTAVO_STEP(v) {
      constexpr int first = r * 2 * N, turns = Source::kTakesTurns;
      const svfloat32_t low = sum.template at<first + (turns ? 2 * v : v)>(), high = sum.template at<first + (turns ? 2 * v + 1 : N + v)>();
      svfloat32_t even = turns ? svuzp1_f32(low, high) : low, odd = turns ? svuzp2_f32(low, high) : high;
      if constexpr (!is_full) {
        even = svadd_n_f32_x(all(), even, 0.0f);
        odd = svadd_n_f32_x(all(), odd, 0.0f);
      }
      const svfloat32_t before = b.is_first ? svdup_f32(0.0f) : svld1_vnum_f32(active, out, v);
      svst1_vnum_f32(active, out, v, svadd_f32_x(all(), before, svadd_f32_x(all(), even, odd)));
    });
  });
}

// Rows in tiles of up to four (of more than two vectors, two), none much smaller than it must be.
template <int N, bool is_full, class Source>
inline void dot_rows(const RowBlock& b, const Source& source, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  for (int64_t r = begin; r < end;) {
    const int64_t left = end - r;
    if constexpr (N <= 2) {
      if (left > 2) {
        const bool is_four = left == 4 || left > 6;
        is_four ? dot_tile<4, N, is_full>(b, source, r, lane, active) : dot_tile<3, N, is_full>(b, source, r, lane, active);
        r += 3 + is_four;
        continue;
      }
    }
    left > 1 ? dot_tile<2, N, is_full>(b, source, r, lane, active) : dot_tile<1, N, is_full>(b, source, r, lane, active);
    r += left > 1 ? 2 : 1;
  }
}

template <int N, class Source>
inline void dot_source(const RowBlock& b, const Source& source, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  if (b.pairs == kBlockPairs)
    dot_rows<N, true>(b, source, begin, end, lane, active);
  else
    dot_rows<N, false>(b, source, begin, end, lane, active);
}

// N vectors of lanes from `lane` on, for all rows.
template <int N, class T>
inline void dot_lanes(const RowBlock& b, const Packed<T>& view, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  const int64_t lanes = N * static_cast<int64_t>(svcntw());
  if (view.ahead)
    for (int64_t i = 0; i < b.pairs; ++i) look_ahead(view, i, lane, lanes);
  const InPlace<T> source{view.at + 2 * lane, view.stride};
  if constexpr (InPlace<T>::kUnpackRows < INT64_MAX) {
    if (end - begin >= InPlace<T>::kUnpackRows) {
      alignas(64) float wide[kBlockPairs * 2 * N * 16];
      for (int64_t i = 0; i < b.pairs; ++i)
        steps<0, 2 * N>([&] OCTAVO_STEP(v) {
          svfloat32_t y = svundef_f32();
          source.widen(y, source.load(i, active, v));
          svst1_vnum_f32(all(), wide + 2 * i * lanes, v, y);
        });
      return dot_source<N>(b, InPlace<float>{wide, 2 * lanes}, begin, end, lane, active);
    }
  }
  dot_source<N>(b, source, begin, end, lane, active);
}

template <int N>
inline void dot_lanes(const RowBlock& b, const Planes& view, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  dot_source<N>(b, InPlanes<N>(Planes{view.even + lane, view.odd + lane, view.stride}), begin, end, lane, active);
}

// Rows [begin, end) x lanes [0, lanes). One row or two take more vectors, so that the latency of a product does not show.
template <class View>
inline void dot_block(const RowBlock& b, const View& view, int64_t begin, int64_t end, int64_t lanes) {
  const int64_t width = static_cast<int64_t>(svcntw());
  int64_t lane = 0;
  if (end - begin <= 2)
    for (; lane + 4 * width <= lanes; lane += 4 * width) dot_lanes<4>(b, view, begin, end, lane, all());
  for (; lane + 2 * width <= lanes; lane += 2 * width) dot_lanes<2>(b, view, begin, end, lane, all());
  for (; lane < lanes; lane += width) dot_lanes<1>(b, view, begin, end, lane, svwhilelt_b32_s64(lane, lanes));
}

// These are chosen over dot32_block of any view.
template <class, class T>
inline void dot32_block(const RowBlock& b, const Packed<T>& view, int64_t begin, int64_t end, int64_t lanes) {
  dot_block(b, view, begin, end, lanes);
}
template <class>
inline void dot32_block(const RowBlock& b, const Planes& view, int64_t begin, int64_t end, int64_t lanes) {
  dot_block(b, view, begin, end, lanes);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
