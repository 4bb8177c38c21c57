// linear_bf16, linear_f16, linear_f32: float weights by dot32 (platforms/ops.py), reproduced with float32 fma. Rows are staged as
// float32, which widens bf16 inputs once for all panels of a group.
#pragma once
#include "linear/dense_rows.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <class Weight>
struct FloatChains {
  using Staged = float;
  static constexpr bool kTurns = false;

  static void stage_row(const LinearArgs& a, int64_t row, int64_t from, int64_t blocks, float* to) {
    const auto* x = static_cast<const typename Weight::Input*>(a.x) + row * a.ldx + from;
    for (int64_t i = 0; i < 32 * blocks; i += V::kLanes) {
      const int64_t left = a.k - from - i;
      V::store(to + i, left >= V::kLanes ? Weight::stage(x + i) : Weight::stage_n(x + i, left > 0 ? static_cast<int>(left) : 0));
    }
  }

  // Weights first, then one broadcast per row: so that chains, weights and broadcast fit the registers.
  template <int R, int C>
  static void step(const float* x, int64_t stride, const uint8_t* record, int64_t panel_bytes, int i, Chains<R, C>* chains) {
    F w[C * kParts];
    for (int c = 0; c < C; ++c)
      for (int p = 0; p < kParts; ++p) w[c * kParts + p] = Weight::weight(record + c * panel_bytes, i, p);
    for (int r = 0; r < R; ++r) {
      const F v = V::broadcast(x[r * stride + i]);
      for (int j = 0; j < C * kParts; ++j) chains->sum[r][j] = V::fma(v, w[j], chains->sum[r][j]);
    }
  }

  // Both chains at once, or where registers do not carry them, in turn.
  template <bool is_turned, int R, int C>
  static void add(const float* x, int64_t stride, const uint8_t* record, int64_t panel_bytes, Chains<R, C>* even, Chains<R, C>* odd) {
    if constexpr (2 * R * C * kParts <= (kIsWide ? 24 : 12)) {
      for (int i = 0; i < 32; i += 2) {
        step(x, stride, record, panel_bytes, i, even);
        step(x, stride, record, panel_bytes, i + 1, odd);
      }
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 32; i += 2) step(x, stride, record, panel_bytes, i, even);
#pragma GCC unroll 8
      for (int i = 1; i < 32; i += 2) step(x, stride, record, panel_bytes, i, odd);
    }
  }
};

struct Bf16 : FloatChains<Bf16> {
  static constexpr PackedKind kKind = PackedKind::bf16;
  using Input = uint16_t;
  static F stage(const Input* x) { return V::load_bf16(x); }
  static F stage_n(const Input* x, int n) { return V::load_bf16_n(x, n); }
  // Weights of input i in one part of a panel.
  static F weight(const uint8_t* record, int i, int part) {
    I raw;
    std::memcpy(&raw, record + i / 2 * 64 + 4 * V::kLanes * part, sizeof raw);
    return V::from_bits(i % 2 ? V::iand(raw, V::ibroadcast(static_cast<int32_t>(0xFFFF0000u))) : V::shl<16>(raw));
  }
};

struct F16 : FloatChains<F16> {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static F weight(const uint8_t* record, int i, int part) { return half_part(record + 32 * i, part); }
};

struct F32 : FloatChains<F32> {
  static constexpr PackedKind kKind = PackedKind::f32;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static F weight(const uint8_t* record, int i, int part) {
    return V::load(reinterpret_cast<const float*>(record) + 16 * i + V::kLanes * part);
  }
};

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<Bf16>(raw, step, lane); }
void linear_f16(const void* raw, const Step& step, const Lane& lane) { run_dense<F16>(raw, step, lane); }
void linear_f32(const void* raw, const Step& step, const Lane& lane) { run_dense<F32>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
