// dot32 of many float32 rows with one block of 32 k-values by vectors of SVE; arithmetic and order as in attention/dot32.inl.h.
//
// Chains of up to four rows are in registers together, even and odd ones; the rows' values come by lane, two pairs to a load. Lanes
// beyond the last are left out by a predicate. Where widening takes several instructions, a block is widened once for many rows.
// With FEAT_BF16 BFMLALB and BFMLALT take pairs of bfloat16 as they lie; rows, rounded to bfloat16, hold it in each upper half.
#pragma once
#include "attention/segment.inl.h"
#include "sve/vectors.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Even and odd elements of the pairs at `at`, vector `v` of them, as float32; every widening is exact.
template <class T>
struct Widened;

template <>
struct Widened<float> {
  static constexpr int64_t kUnpackRows = INT64_MAX;
  static OCTAVO_INLINE void pairs(svbool_t active, const float* at, int v, svfloat32_t& even, svfloat32_t& odd) {
    const svfloat32x2_t both = svld2_vnum_f32(active, at, 2 * v);
    even = svget2_f32(both, 0);
    odd = svget2_f32(both, 1);
  }
};
template <>
struct Widened<BF16> {
  static constexpr int64_t kUnpackRows = INT64_MAX;
  static OCTAVO_INLINE void pairs(svbool_t active, const BF16* at, int v, svfloat32_t& even, svfloat32_t& odd) {
    const svuint32_t both = svld1_vnum_u32(active, reinterpret_cast<const uint32_t*>(at), v);
    even = svreinterpret_f32_u32(svlsl_n_u32_x(all(), both, 16));
    odd = svreinterpret_f32_u32(svand_n_u32_x(all(), both, 0xFFFF0000u));
  }
};
template <>
struct Widened<F16> {
  static constexpr int64_t kUnpackRows = 8;
  static OCTAVO_INLINE void pairs(svbool_t active, const F16* at, int v, svfloat32_t& even, svfloat32_t& odd) {
    const svuint32_t both = svld1_vnum_u32(active, reinterpret_cast<const uint32_t*>(at), v);
    even = svcvt_f32_f16_x(all(), svreinterpret_f16_u32(both));
    odd = svcvt_f32_f16_x(all(), svreinterpret_f16_u32(svlsr_n_u32_x(all(), both, 16)));
  }
};
template <>
struct Widened<int8_t> {
  static constexpr int64_t kUnpackRows = 8;
  static OCTAVO_INLINE void pairs(svbool_t active, const int8_t* at, int v, svfloat32_t& even, svfloat32_t& odd) {
    const svint32_t both = svld1sh_vnum_s32(active, reinterpret_cast<const int16_t*>(at), v);
    even = svcvt_f32_s32_x(all(), svextb_s32_x(all(), both));
    odd = svcvt_f32_s32_x(all(), svasr_n_s32_x(all(), both, 8));
  }
};

// Pair rows as they lie, from a lane on.
template <class T>
struct InPlace {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  static constexpr bool kIsPairs = std::is_same_v<T, BF16>;
#else
  static constexpr bool kIsPairs = false;
#endif
  const T* at;
  int64_t stride;
  OCTAVO_INLINE void pairs(int64_t i, svbool_t active, int v, svfloat32_t& even, svfloat32_t& odd) const {
    Widened<T>::pairs(active, at + i * stride, v, even, odd);
  }
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <int R, int N, int v, int j>
OCTAVO_INLINE void add_pairs(const Registers<svfloat32_t>& even, const Registers<svfloat32_t>& odd, const Registers<svfloat32_t>& in,
                             svbool_t active, const BF16* at) {
  const svbfloat16_t w = svreinterpret_bf16_u32(svld1_vnum_u32(active, reinterpret_cast<const uint32_t*>(at), v));
  steps<0, R>([&] OCTAVO_STEP(r) {
    const svbfloat16_t x = svreinterpret_bf16_f32(in.template at<r>());
    fma_lane_low<r, 4 * j + 1>(even.template at<r * N + v>(), w, x);
    fma_lane_high<r, 4 * j + 3>(odd.template at<r * N + v>(), w, x);
  });
}
#else
template <int R, int N, int v, int j, class T>
void add_pairs(const Registers<svfloat32_t>&, const Registers<svfloat32_t>&, const Registers<svfloat32_t>&, svbool_t, const T*);
#endif

// Pair rows widened before: N vectors of even elements, then of odd ones.
template <int N>
struct Unpacked {
  static constexpr bool kIsPairs = false;
  const float* at;
  OCTAVO_INLINE void pairs(int64_t i, svbool_t active, int v, svfloat32_t& even, svfloat32_t& odd) const {
    const float* row = at + 2 * N * i * static_cast<int64_t>(svcntw());
    even = svld1_vnum_f32(active, row, v);
    odd = svld1_vnum_f32(active, row, N + v);
  }
};

// Even and odd elements in rows of their own, from a lane on.
struct InPlanes {
  static constexpr bool kIsPairs = false;
  Planes view;
  OCTAVO_INLINE void pairs(int64_t i, svbool_t active, int v, svfloat32_t& even, svfloat32_t& odd) const {
    even = svld1_vnum_f32(active, view.even + i * view.stride, v);
    odd = svld1_vnum_f32(active, view.odd + i * view.stride, v);
  }
};

// R rows from `row` on x N vectors from `lane` on.
template <int R, int N, bool is_full, class Source>
inline void dot_tile(const RowBlock& b, const Source& source, int64_t row, int64_t lane, svbool_t active) {
  const int64_t pairs = is_full ? kBlockPairs : b.pairs, lda = b.lda;
  const float* x = b.a + row * lda;
  OCTAVO_REGISTERS(svfloat32_t, even);
  OCTAVO_REGISTERS(svfloat32_t, odd);
  steps<0, R * N>([&] OCTAVO_STEP(i) { even.template at<i>() = odd.template at<i>() = svdup_f32(0.0f); });
  const auto add = [&](int64_t i, svbool_t loaded, auto count) __attribute__((always_inline)) {
    OCTAVO_REGISTERS(svfloat32_t, in);
    steps<0, R>([&] OCTAVO_STEP(r) { in.template at<r>() = svld1rq_f32(loaded, x + r * lda); });
    steps<0, count>([&] OCTAVO_STEP(j) {
      steps<0, N>([&] OCTAVO_STEP(v) {
        if constexpr (Source::kIsPairs) return add_pairs<R, N, v, j>(even, odd, in, active, source.at + (i + j) * source.stride);
        svfloat32_t y, z;
        source.pairs(i + j, active, v, y, z);
        steps<0, R>([&] OCTAVO_STEP(r) {
          fma_lane<r, 2 * j>(even.template at<r * N + v>(), y, in.template at<r>());
          fma_lane<r, 2 * j + 1>(odd.template at<r * N + v>(), z, in.template at<r>());
        });
      });
    });
  };
  int64_t i = 0;
#pragma GCC unroll 1
  for (; i + 2 <= pairs; i += 2, x += 4) add(i, all(), std::integral_constant<int, 2>{});
  if constexpr (!is_full) {
    if (i < pairs) add(i, svptrue_pat_b32(SV_VL2), std::integral_constant<int, 1>{});
  }
  steps<0, R>([&] OCTAVO_STEP(r) {
    float* out = b.out + (row + r) * b.ldo + lane;
    steps<0, N>([&] OCTAVO_STEP(v) {
      svfloat32_t y = even.template at<r * N + v>(), z = odd.template at<r * N + v>();
      if constexpr (!is_full) {
        y = svadd_n_f32_x(all(), y, 0.0f);
        z = svadd_n_f32_x(all(), z, 0.0f);
      }
      const svfloat32_t before = b.is_first ? svdup_f32(0.0f) : svld1_vnum_f32(active, out, v);
      svst1_vnum_f32(active, out, v, svadd_f32_x(all(), before, svadd_f32_x(all(), y, z)));
    });
  });
}

// Rows in tiles of up to four, none much smaller than it must be.
template <int N, bool is_full, class Source>
inline void dot_rows(const RowBlock& b, const Source& source, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  for (int64_t r = begin; r < end;) {
    const int64_t left = end - r;
    if (left == 4 || left > 6) {
      dot_tile<4, N, is_full>(b, source, r, lane, active);
      r += 4;
    } else if (left > 2) {
      dot_tile<3, N, is_full>(b, source, r, lane, active);
      r += 3;
    } else if (left == 2) {
      dot_tile<2, N, is_full>(b, source, r, lane, active);
      r += 2;
    } else {
      dot_tile<1, N, is_full>(b, source, r, lane, active);
      r += 1;
    }
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
  if constexpr (Widened<T>::kUnpackRows < INT64_MAX) {
    if (end - begin >= Widened<T>::kUnpackRows) {
      alignas(64) float planes[kBlockPairs * 2 * N * 16];
      for (int64_t i = 0; i < b.pairs; ++i)
        steps<0, N>([&] OCTAVO_STEP(v) {
          svfloat32_t y, z;
          source.pairs(i, active, v, y, z);
          svst1_vnum_f32(all(), planes + 2 * i * lanes, v, y);
          svst1_vnum_f32(all(), planes + 2 * i * lanes, N + v, z);
        });
      return dot_source<N>(b, Unpacked<N>{planes}, begin, end, lane, active);
    }
  }
  dot_source<N>(b, source, begin, end, lane, active);
}

template <int N>
inline void dot_lanes(const RowBlock& b, const Planes& view, int64_t begin, int64_t end, int64_t lane, svbool_t active) {
  dot_source<N>(b, InPlanes{{view.even + lane, view.odd + lane, view.stride}}, begin, end, lane, active);
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

// As attend_segment, with these products.
template <class KV, class Ahead>
void attend_segment_by_vectors(Tile& tile, KV& kv, const ScoreRule& rule, int64_t segment, Ahead& ahead) {
  const int64_t dim = tile.head_dim, base = segment * kSegment;
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const auto keys = kv.keys(block, ahead.in_step());
    for (int64_t d = 0; d < dim; d += 2 * kBlockPairs) {
      const RowBlock rows{tile.q + d, dim, tile.scores + block * kBlock - base, kScoreStride,
                          smaller(kBlockPairs, (dim - d) / 2), d == 0};
      dot_block(rows, KV::from_pair(keys, d / 2), begin, end, kBlock);
    }
  });
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    Row& row = tile.rows[r];
    const BlockRange range = visible_blocks(row, segment);
    if (range.first > range.last) continue;
    const Asking asking(ahead.extra(), kv.tile_bytes(), (range.last - range.first + 2) / 2);
    to_weights<vec::Native>(rule, kv, row, range, tile.scores + r * kScoreStride, asking);
  }
  std::memset(tile.part, 0, static_cast<size_t>(tile.num_rows * dim) * sizeof(float));
  for_blocks(tile, segment, [&](int64_t block, int64_t begin, int64_t end) {
    const RowBlock rows{tile.scores + block * kBlock - base, kScoreStride, tile.part, dim, kBlockPairs, false};
    dot_block(rows, kv.values(block, ahead.in_step()), begin, end, dim);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
