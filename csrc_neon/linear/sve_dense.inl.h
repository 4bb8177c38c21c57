// linear_bf16, linear_f16, linear_f32 by vectors of SVE; arithmetic and order as in linear_dense.inl.h.
#pragma once
#include "linear/sve_panel.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// kStep: inputs of 128 bits of a row. `add` takes kStep inputs of every row, and their weights for the parts from part0 on; chains
// are even[r * N + i] and odd[r * N + i].
struct F32Weights {
  static constexpr PackedKind kKind = PackedKind::f32;
  using Input = float;
  static constexpr int kStep = 4;
  static OCTAVO_INLINE svfloat32_t weight(const uint8_t* at, int vector) {
    return svld1_vnum_f32(all(), reinterpret_cast<const float*>(at), vector);
  }
};

struct F16Weights {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static constexpr int kStep = 4;
  static OCTAVO_INLINE svfloat32_t weight(const uint8_t* at, int vector) { return halves_part(at, vector); }
};

template <class W, int P, int R, int N>
OCTAVO_INLINE void add_inputs(const Registers<svfloat32_t>& even, const Registers<svfloat32_t>& odd, const float* x, int64_t ldx,
                              const uint8_t* at, int part0) {
  OCTAVO_REGISTERS(svfloat32_t, in);
  steps<0, R>([&] OCTAVO_STEP(r) { in.template at<r>() = svld1rq_f32(all(), x + r * ldx); });
  steps<0, 4>([&] OCTAVO_STEP(n) {
    steps<0, N>([&] OCTAVO_STEP(i) {
      const svfloat32_t w = W::weight(at, P * n + part0 + i);
      steps<0, R>([&] OCTAVO_STEP(r) { fma_lane<r, n>((n % 2 ? odd : even).template at<r * N + i>(), w, in.template at<r>()); });
    });
  });
}

struct BF16Weights {
  static constexpr PackedKind kKind = PackedKind::bf16;
  using Input = uint16_t;
  static constexpr int kStep = 8;
};

OCTAVO_INLINE svfloat32_t low_halves(svuint32_t pairs) { return svreinterpret_f32_u32(svlsl_n_u32_x(all(), pairs, 16)); }
OCTAVO_INLINE svfloat32_t high_halves(svuint32_t pairs) { return svreinterpret_f32_u32(svand_n_u32_x(all(), pairs, 0xFFFF0000u)); }

template <class W, int P, int R, int N>
OCTAVO_INLINE void add_inputs(const Registers<svfloat32_t>& even, const Registers<svfloat32_t>& odd, const uint16_t* x, int64_t ldx,
                              const uint8_t* at, int part0) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  OCTAVO_REGISTERS(svbfloat16_t, in);
  steps<0, R>([&] OCTAVO_STEP(r) { in.template at<r>() = svreinterpret_bf16_u16(svld1rq_u16(all(), x + r * ldx)); });
  steps<0, 4>([&] OCTAVO_STEP(n) {
    steps<0, N>([&] OCTAVO_STEP(i) {
      const svuint16_t pairs = svld1_vnum_u16(all(), reinterpret_cast<const uint16_t*>(at), P * n + part0 + i);
      const svbfloat16_t w = svreinterpret_bf16_u16(pairs);
      steps<0, R>([&] OCTAVO_STEP(r) {
        fma_lane_low<r, 2 * n>(even.template at<r * N + i>(), w, in.template at<r>());
        fma_lane_high<r, 2 * n + 1>(odd.template at<r * N + i>(), w, in.template at<r>());
      });
    });
  });
#else
  OCTAVO_REGISTERS(svfloat32_t, in);
  steps<0, R>([&] OCTAVO_STEP(r) {
    const svuint32_t pairs = svreinterpret_u32_u16(svld1rq_u16(all(), x + r * ldx));
    in.template at<2 * r>() = low_halves(pairs);
    in.template at<2 * r + 1>() = high_halves(pairs);
  });
  steps<0, 4>([&] OCTAVO_STEP(n) {
    steps<0, N>([&] OCTAVO_STEP(i) {
      const svuint32_t pairs = svld1_vnum_u32(all(), reinterpret_cast<const uint32_t*>(at), P * n + part0 + i);
      const svfloat32_t low = low_halves(pairs), high = high_halves(pairs);
      steps<0, R>([&] OCTAVO_STEP(r) {
        fma_lane<2 * r, n>(even.template at<r * N + i>(), low, in.template at<2 * r>());
        fma_lane<2 * r + 1, n>(odd.template at<r * N + i>(), high, in.template at<2 * r + 1>());
      });
    });
  });
#endif
}

template <class W, int P>
struct DenseKernel {
  using Input = typename W::Input;
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = sizeof(Input);
  static constexpr int64_t kRecord = record_bytes(W::kKind, 0);

  const LinearArgs& a;
  int64_t panel_bytes;

  // One block of 32 inputs at x, added to acc[R][16].
  template <int R, int N, int part0>
  OCTAVO_INLINE void block(const Input* x, int64_t ldx, const uint8_t* record, float* acc) const {
    constexpr int kBytes = static_cast<int>(kRecord) / 32 * W::kStep;
    OCTAVO_REGISTERS(svfloat32_t, even);
    OCTAVO_REGISTERS(svfloat32_t, odd);
    steps<0, R * N>([&] OCTAVO_STEP(i) { even.template at<i>() = odd.template at<i>() = svdup_f32(0.0f); });
#pragma GCC unroll 1
    for (int i = 0; i < 32; i += W::kStep, record += kBytes) add_inputs<W, P, R, N>(even, odd, x + i, ldx, record, part0);
    steps<0, R>([&] OCTAVO_STEP(r) {
      steps<0, N>([&] OCTAVO_STEP(i) {
        const svfloat32_t both = svadd_f32_x(all(), even.template at<r * N + i>(), odd.template at<r * N + i>());
        const svfloat32_t sum = svld1_vnum_f32(all(), acc + 16 * r, part0 + i);
        svst1_vnum_f32(all(), acc + 16 * r, part0 + i, svadd_f32_x(all(), sum, both));
      });
    });
  }

  // Chains of as many parts as fit the registers beside the inputs of all rows.
  template <int R>
  OCTAVO_INLINE void whole(const Input* x, int64_t ldx, const uint8_t* record, float* acc) const {
    constexpr int N = R > 2 && P > 2 ? 2 : P;
    steps<0, P / N>([&] OCTAVO_STEP(n) { block<R, N, n * N>(x, ldx, record, acc); });
  }

  template <int R, int C>
  void tile(const TileAt& at) const {
    static_assert(C == 1, "a panel at a time");
    const Input* x = static_cast<const Input*>(a.x) + at.row * a.ldx;
    const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<1> ahead(at, record, panel_bytes);
    alignas(64) float acc[R * 16] = {};
    int64_t i = 0;
    for (; i + 32 <= a.k; i += 32, record += kRecord) {
      ahead.ask(record, kRecord);
      whole<R>(x + i, a.ldx, record, acc);
    }
    if (i < a.k) {  // what is missing of the last block reads as +0
      alignas(16) Input padded[R][32] = {};
      for (int r = 0; r < R; ++r) std::memcpy(padded[r], x + r * a.ldx + i, static_cast<size_t>(a.k - i) * sizeof(Input));
      whole<R>(padded[0], 32, record, acc);
    }
    finish_panel<R>(a, at, acc);
  }
};

template <class W>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  with_parts([&](auto p) { run_kernel<DenseKernel<W, p>>(a, step, lane, panel_bytes(W::kKind, 0, a.k)); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
