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
constexpr int kMaxRows = kIsWide ? 6 : 3;
constexpr int64_t kPiece = 1024;

struct Bf16 {
  static constexpr PackedKind kKind = PackedKind::bf16;
  using Input = uint16_t;
  static F stage(const Input* x) { return V::load_bf16(x); }
  static F stage_n(const Input* x, int n) { return V::load_bf16_n(x, n); }
  // Weights of inputs i and i + 1 (i even) in one part of a panel.
  static void pair(const uint8_t* record, int i, int part, F* even, F* odd) {
    I raw;
    std::memcpy(&raw, record + 32 * i + 4 * V::kLanes * part, sizeof raw);
    *even = V::from_bits(V::shl<16>(raw));
    *odd = V::from_bits(V::iand(raw, V::ibroadcast(static_cast<int32_t>(0xFFFF0000u))));
  }
};

struct F16 {
  static constexpr PackedKind kKind = PackedKind::f16;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static void pair(const uint8_t* record, int i, int part, F* even, F* odd) {
    *even = half_part(record + 32 * i, part);
    *odd = half_part(record + 32 * i + 32, part);
  }
};

struct F32 {
  static constexpr PackedKind kKind = PackedKind::f32;
  using Input = float;
  static F stage(const Input* x) { return V::load(x); }
  static F stage_n(const Input* x, int n) { return V::load_n(x, n); }
  static void pair(const uint8_t* record, int i, int part, F* even, F* odd) {
    const float* w = reinterpret_cast<const float*>(record) + 16 * i + V::kLanes * part;
    *even = V::load(w);
    *odd = V::load(w + 16);
  }
};

// `blocks` blocks of 32 inputs of C panels (panel_bytes apart) into acc[C][R][16].
template <class Dense, int R, int C>
inline void dense_tile(const float* x, const uint8_t* weight, int64_t panel_bytes, int64_t blocks, float* acc) {
  constexpr int64_t kBytes = record_bytes(Dense::kKind, 0);
  for (int64_t b = 0; b < blocks; ++b) {
    F e[C][kParts][R], o[C][kParts][R];
    for (int c = 0; c < C; ++c)
      for (int p = 0; p < kParts; ++p)
        for (int r = 0; r < R; ++r) e[c][p][r] = o[c][p][r] = V::zero();
    for (int i = 0; i < 32; i += 2)
      for (int c = 0; c < C; ++c)
        for (int p = 0; p < kParts; ++p) {
          F even, odd;
          Dense::pair(weight + c * panel_bytes + b * kBytes, i, p, &even, &odd);
          for (int r = 0; r < R; ++r) {
            e[c][p][r] = V::fma(V::broadcast(x[r * kPiece + 32 * b + i]), even, e[c][p][r]);
            o[c][p][r] = V::fma(V::broadcast(x[r * kPiece + 32 * b + i + 1]), odd, o[c][p][r]);
          }
        }
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) {
          float* at = acc + (c * R + r) * 16 + p * V::kLanes;
          V::store(at, V::add(V::load(at), V::add(e[c][p][r], o[c][p][r])));
        }
  }
}

// All panels of a span for R rows.
template <class Dense, int R>
inline void dense_span(const LinearArgs& a, const Span& s, const Lane& lane, int64_t panel_bytes) {
  constexpr int C = R * kParts >= 4 ? 1 : 4 / (R * kParts);
  float* x = static_cast<float*>(lane.scratch);
  float* acc = x + kMaxRows * kPiece;
  std::memset(acc, 0, static_cast<size_t>(s.panels * R * 16) * sizeof(float));
  for (int64_t k = 0; k < a.k; k += kPiece) {
    const int64_t count = a.k - k < kPiece ? a.k - k : kPiece, blocks = (count + 31) / 32;
    for (int r = 0; r < R; ++r) {
      const auto* from = static_cast<const typename Dense::Input*>(a.x) + (s.row + r) * a.ldx + k;
      for (int64_t i = 0; i < 32 * blocks; i += V::kLanes) {
        const int64_t left = count - i;
        V::store(x + r * kPiece + i,
                 left >= V::kLanes ? Dense::stage(from + i) : Dense::stage_n(from + i, left > 0 ? static_cast<int>(left) : 0));
      }
    }
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + s.panel * panel_bytes + k / 32 * record_bytes(Dense::kKind, 0);
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
