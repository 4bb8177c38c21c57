// linear_bf16, linear_f16, linear_f32: float weights by dot32 (platforms/ops.py), reproduced with float32 fma.
//
// Per block of 32 inputs two chains from +0, over even and over odd inputs, then acc += even + odd. A tile is R rows x C panels,
// R and C chosen so that enough chains are in flight to hide the latency of fma. Rows are staged as float32 in pieces of
// kPiece inputs, which widens bf16 inputs once for all panels of a group and pads the tail with zeros; accumulators live in
// scratch between pieces.
#pragma once
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr bool kIsWide = V::kLanes == 16;
constexpr int kMaxRows = 6;
constexpr int64_t kPiece = 1024;
constexpr int64_t kStride = kPiece + 16;  // of staged rows: not a multiple of 4 KiB, so that they fall into different cache sets

struct Bf16 {
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

struct F16 {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static F weight(const uint8_t* record, int i, int part) { return half_part(record + 32 * i, part); }
};

struct F32 {
  static constexpr PackedKind kKind = PackedKind::f32;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static F weight(const uint8_t* record, int i, int part) {
    return V::load(reinterpret_cast<const float*>(record) + 16 * i + V::kLanes * part);
  }
};

// Chains of R rows x C panels over the inputs of one parity (or both, in turn) of a block.
template <class Dense, int R, int C>
struct Chains {
  F sum[R][C * kParts];

  Chains() {
    for (auto& row : sum)
      for (F& v : row) v = V::zero();
  }
  // Weights first, then one broadcast per row: so that chains, weights and broadcast fit the registers.
  void step(const float* x, const uint8_t* record, int64_t panel_bytes, int i) {
    F w[C * kParts];
    for (int c = 0; c < C; ++c)
      for (int p = 0; p < kParts; ++p) w[c * kParts + p] = Dense::weight(record + c * panel_bytes, i, p);
    for (int r = 0; r < R; ++r) {
      const F v = V::broadcast(x[r * kStride + i]);
      for (int j = 0; j < C * kParts; ++j) sum[r][j] = V::fma(v, w[j], sum[r][j]);
    }
  }
};

// `blocks` blocks of 32 inputs of C panels (panel_bytes apart), added to acc[C][R][16].
template <class Dense, int R, int C>
inline void dense_tile(const float* x, const uint8_t* weight, int64_t panel_bytes, int64_t blocks, float* acc) {
  constexpr int kVectors = R * C * kParts;
  constexpr bool kBothAtOnce = 2 * kVectors <= (kIsWide ? 24 : 12);
  for (int64_t b = 0; b < blocks; ++b, x += 32, weight += record_bytes(Dense::kKind, 0)) {
    Chains<Dense, R, C> even, odd;
    if constexpr (kBothAtOnce) {
      for (int i = 0; i < 32; i += 2) {
        even.step(x, weight, panel_bytes, i);
        odd.step(x, weight, panel_bytes, i + 1);
      }
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 32; i += 2) even.step(x, weight, panel_bytes, i);
#pragma GCC unroll 8
      for (int i = 1; i < 32; i += 2) odd.step(x, weight, panel_bytes, i);
    }
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) {
          float* at = acc + (c * R + r) * 16 + p * V::kLanes;
          const int j = c * kParts + p;
          V::store(at, V::add(V::load(at), V::add(even.sum[r][j], odd.sum[r][j])));
        }
  }
}

// All panels of a span for R rows.
template <class Dense, int R>
inline void dense_span(const LinearArgs& a, const Span& s, const Lane& lane, int64_t panel_bytes) {
  constexpr int C = R == 1 ? 4 / kParts : kIsWide ? 2 : 1;  // eight chains and more
  float* x = static_cast<float*>(lane.scratch);
  float* acc = x + kMaxRows * kStride;
  std::memset(acc, 0, static_cast<size_t>(s.panels * R * 16) * sizeof(float));
  for (int64_t k = 0; k < a.k; k += kPiece) {
    const int64_t count = a.k - k < kPiece ? a.k - k : kPiece, blocks = (count + 31) / 32;
    for (int r = 0; r < R; ++r) {
      const auto* from = static_cast<const typename Dense::Input*>(a.x) + (s.row + r) * a.ldx + k;
      for (int64_t i = 0; i < 32 * blocks; i += V::kLanes) {
        const int64_t left = count - i;
        V::store(x + r * kStride + i,
                 left >= V::kLanes ? Dense::stage(from + i) : Dense::stage_n(from + i, left > 0 ? static_cast<int>(left) : 0));
      }
    }
    const uint8_t* weight =
        static_cast<const uint8_t*>(a.weight) + s.panel * panel_bytes + k / 32 * record_bytes(Dense::kKind, 0);
    int64_t p = 0;
    for (; p + C <= s.panels; p += C) dense_tile<Dense, R, C>(x, weight + p * panel_bytes, panel_bytes, blocks, acc + p * R * 16);
    if constexpr (C > 1)
      for (; p < s.panels; ++p) dense_tile<Dense, R, 1>(x, weight + p * panel_bytes, panel_bytes, blocks, acc + p * R * 16);
  }
  for (int64_t p = 0; p < s.panels; ++p)
    for (int r = 0; r < R; ++r) finish<V>(a, s.row + r, (s.panel + p) * kPanel, acc + (p * R + r) * 16);
}

template <class Dense, int R = kMaxRows>
inline void dense_rows(const LinearArgs& a, const Span& s, const Lane& lane, int64_t panel_bytes) {
  if constexpr (R > 1) {
    if (s.rows < R) return dense_rows<Dense, R - 1>(a, s, lane, panel_bytes);
  }
  dense_span<Dense, R>(a, s, lane, panel_bytes);
}

template <class Dense>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(Dense::kKind, 0, a.k);
  run_tiles<kMaxRows>(a, step, lane, bytes, [&](const Span& s) { dense_rows<Dense>(a, s, lane, bytes); });
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<Bf16>(raw, step, lane); }
void linear_f16(const void* raw, const Step& step, const Lane& lane) { run_dense<F16>(raw, step, lane); }
void linear_f32(const void* raw, const Step& step, const Lane& lane) { run_dense<F32>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
