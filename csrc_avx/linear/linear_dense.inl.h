// linear_bf16, linear_f16, linear_f32: float weights by dot32 (platforms/ops.py), reproduced with float32 fma.
//
// Per block of 32 inputs two chains from +0, over even and over odd inputs, then acc += even + odd. A tile is R rows x C panels,
// R and C chosen so that enough chains are in flight to hide the latency of fma. The rows of a block are staged as float32 in
// pieces of its inputs, which widens bf16 inputs once for all panels of a group and pads the tail with zeros; sums wait in
// scratch between pieces.
#pragma once
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr bool kIsWide = V::kLanes == 16;
constexpr int kTileRows = 6, kTilePanels = kIsWide ? 2 : 1;
constexpr int64_t kBlockRows = 16 * kTileRows;
constexpr int64_t kStaged = 1024 * kBlockRows;  // inputs of a block, of as many of its columns: 384 KiB in L2 beside the weights
constexpr int64_t kPad = 16;                   // behind a staged row, so that rows fall into different cache sets
constexpr int64_t kSums = 96 << 10;            // of a unit, in scratch
static_assert((kStaged + kPad * kBlockRows + kSums) * 4 <= kScratchBytes, "scratch is per thread");

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
  void step(const float* x, int64_t stride, const uint8_t* record, int64_t panel_bytes, int i) {
    F w[C * kParts];
    for (int c = 0; c < C; ++c)
      for (int p = 0; p < kParts; ++p) w[c * kParts + p] = Dense::weight(record + c * panel_bytes, i, p);
    for (int r = 0; r < R; ++r) {
      const F v = V::broadcast(x[r * stride + i]);
      for (int j = 0; j < C * kParts; ++j) sum[r][j] = V::fma(v, w[j], sum[r][j]);
    }
  }
};

// A block of rows and a piece of its inputs, staged.
template <class Dense>
struct DenseKernel {
  static constexpr int kRows = kTileRows, kPanels = kTilePanels, kSingles = 0, kInputBytes = 0;
  static constexpr int64_t kRecord = record_bytes(Dense::kKind, 0);

  const LinearArgs& a;
  int64_t panel_bytes;
  const Span& span;
  const float* x;
  int64_t stride;   // of staged rows
  int64_t first;    // 32s of the piece
  int64_t count;
  bool is_last;
  float* sums;      // [panels][rows of the block][16], between pieces

  // `count` blocks of 32 inputs, added to acc[R][16 * C].
  template <int R, int C>
  void add(const TileAt& at, float* acc) const {
    constexpr bool kBothAtOnce = 2 * R * C * kParts <= (kIsWide ? 24 : 12);
    const float* in = x + (at.row - span.row) * stride;
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
    Ahead<C> ahead(at, weight, panel_bytes);
    weight += first * kRecord;
    for (int64_t b = 0; b < count; ++b, in += 32, weight += kRecord) {
      ahead.ask(weight, kRecord);
      Chains<Dense, R, C> even, odd;
      if constexpr (kBothAtOnce) {
        for (int i = 0; i < 32; i += 2) {
          even.step(in, stride, weight, panel_bytes, i);
          odd.step(in, stride, weight, panel_bytes, i + 1);
        }
      } else {
#pragma GCC unroll 8
        for (int i = 0; i < 32; i += 2) even.step(in, stride, weight, panel_bytes, i);
#pragma GCC unroll 8
        for (int i = 1; i < 32; i += 2) odd.step(in, stride, weight, panel_bytes, i);
      }
      for (int r = 0; r < R; ++r)
        for (int j = 0; j < C * kParts; ++j) {
          float* to = acc + (r * C * kParts + j) * V::kLanes;
          V::store(to, V::add(V::load(to), V::add(even.sum[r][j], odd.sum[r][j])));
        }
    }
  }

  template <int R, int C>
  void tile(const TileAt& at) const {
    alignas(64) float acc[R * C * 16] = {};
    float* kept = sums + ((at.panel - span.panel) * span.rows + at.row - span.row) * 16;  // of the first panel
    const auto each = [&](auto&& move) {
      for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
          for (int i = 0; i < 16; i += V::kLanes) move(acc + (r * C + c) * 16 + i, kept + (c * span.rows + r) * 16 + i);
    };
    if (first > 0) each([](float* to, const float* from) { V::store(to, V::load(from)); });
    add<R, C>(at, acc);
    if (is_last)
      finish_tile<V, R, C>(a, at.row, at.panel * kPanel, acc);
    else
      each([](const float* from, float* to) { V::store(to, V::load(from)); });
  }
};

// Inputs [from, from + 32 * blocks) of a row as float32, zeros beyond k.
template <class Dense>
inline void stage_row(const LinearArgs& a, int64_t row, int64_t from, int64_t blocks, float* to) {
  const auto* x = static_cast<const typename Dense::Input*>(a.x) + row * a.ldx + from;
  for (int64_t i = 0; i < 32 * blocks; i += V::kLanes) {
    const int64_t left = a.k - from - i;
    V::store(to + i, left >= V::kLanes ? Dense::stage(x + i) : Dense::stage_n(x + i, left > 0 ? static_cast<int>(left) : 0));
  }
}

template <class Dense>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(Dense::kKind, 0, a.k), blocks = (a.k + 31) / 32;
  float* x = static_cast<float*>(lane.scratch);
  float* sums = x + kStaged + kPad * kBlockRows;
  const auto unit = [&](const Span& s) {
    const int64_t most = kStaged / s.rows / 32, piece = blocks < most ? blocks : most, stride = 32 * piece + kPad;
    for (int64_t first = 0; first < blocks; first += piece) {
      const int64_t count = blocks - first < piece ? blocks - first : piece;
      for (int64_t r = 0; r < s.rows; ++r) stage_row<Dense>(a, s.row + r, 32 * first, count, x + r * stride);
      block_of_tiles(DenseKernel<Dense>{a, bytes, s, x, stride, first, count, first + count == blocks, sums}, s);
    }
  };
  run_units(a, step, lane, bytes, kBlockRows, kTilePanels, [&](const Span& s) {
    const int64_t most = kSums / 16 / s.rows / kTilePanels * kTilePanels;  // panels
    for (int64_t p = 0; p < s.panels; p += most) {
      const bool is_last = s.panels - p <= most;
      unit(Span{s.row, s.rows, s.panel + p, is_last ? s.panels - p : most, is_last ? s.next : s.panel + p + most});
    }
  });
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<Bf16>(raw, step, lane); }
void linear_f16(const void* raw, const Step& step, const Lane& lane) { run_dense<F16>(raw, step, lane); }
void linear_f32(const void* raw, const Step& step, const Lane& lane) { run_dense<F32>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
