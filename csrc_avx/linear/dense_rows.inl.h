// How products with float weights by dot32 (platforms/ops.py) are shared out, for every instruction that makes its chains.
//
// Per block of 32 inputs two chains from +0, over even and over odd inputs, then acc += even + odd. A tile is R rows x C panels,
// R and C chosen so that enough chains are in flight to hide the latency of a step. The rows of a block are staged in pieces of
// their inputs, once for all panels of a group, the tail padded with zeros; sums wait in scratch between pieces.
//
// A Dense says what a weight is: kKind; Staged, the type of a staged input; stage_row(args, row, from, blocks, to), inputs
// [from, from + 32 * blocks) of a row; add<is_turned>(x, stride, record, panel_bytes, &even, &odd), a block of 32 inputs; kTurns and
// turn(record, count, to): whether the weights of several tiles of rows are turned to another order first.
#pragma once
#include "linear/tile_walk.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr bool kIsWide = V::kLanes == 16;
constexpr int kTileRows = 6, kTilePanels = kIsWide ? 2 : 1;
constexpr int64_t kBlockRows = 16 * kTileRows;
constexpr int64_t kStaged = 1024 * kBlockRows;  // inputs of a block, of as many of its columns: 384 KiB in L2 beside the weights
constexpr int64_t kTurnedTiles = 4;             // of rows, from which on turning pays
constexpr int64_t kPadBytes = 64;               // behind a staged row, so that rows fall into different cache sets
constexpr int64_t kSums = 96 << 10;            // of a unit, in scratch
static_assert((kStaged + kSums) * 4 + kPadBytes * kBlockRows <= kScratchBytes, "scratch is per thread");

template <int R, int C>
struct Chains {
  F sum[R][C * kParts];

  Chains() {
    for (auto& row : sum)
      for (F& v : row) v = V::zero();
  }
};

// A block of rows and a piece of its inputs, staged.
template <class Dense>
struct DenseKernel {
  static constexpr int kRows = kTileRows, kPanels = kTilePanels, kSingles = 0;
  static constexpr int64_t kRecord = record_bytes(Dense::kKind, 0);

  const LinearArgs& a;
  int64_t panel_bytes;
  const Span& span;
  const typename Dense::Staged* x;
  int64_t stride;   // of staged rows
  int64_t first;    // 32s of the piece
  int64_t count;
  bool is_last;
  float* sums;      // [panels][rows of the block][16], between pieces
  uint8_t* turned;  // room for the weights of a piece of kPanels panels

  // `count` blocks of 32 inputs, added to acc[R][16 * C].
  template <int R, int C>
  void add(const TileAt& at, float* acc) const {
    const typename Dense::Staged* in = x + (at.row - span.row) * stride;
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes + first * kRecord;
    Ahead<C> ahead(at, panel_bytes);
    const bool is_turned = Dense::kTurns && at.turns >= kTurnedTiles;
    if constexpr (Dense::kTurns)
      if (is_turned && at.turn == 0)
        for (int c = 0; c < C; ++c) Dense::turn(weight + c * panel_bytes, count, turned + c * count * kRecord);
    for (int64_t b = 0; b < count; ++b, in += 32, weight += kRecord) {
      ahead.ask(weight, kRecord);
      Chains<R, C> even, odd;
      if (is_turned) {
        if constexpr (Dense::kTurns) Dense::template add<true>(in, stride, turned + b * kRecord, count * kRecord, &even, &odd);
      } else {
        Dense::template add<false>(in, stride, weight, panel_bytes, &even, &odd);
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

template <class Dense>
inline void run_dense(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(Dense::kKind, 0, a.k), blocks = (a.k + 31) / 32;
  float* sums = static_cast<float*>(lane.scratch);
  auto* x = reinterpret_cast<typename Dense::Staged*>(sums + kSums);
  uint8_t* turned = reinterpret_cast<uint8_t*>(x + kStaged) + kPadBytes * kBlockRows;
  const auto unit = [&](const Span& s) {
    const bool may_turn = Dense::kTurns && s.rows > (kTurnedTiles - 1) * kTileRows;
    const int64_t most = kStaged / (may_turn ? kBlockRows : s.rows) / 32, piece = blocks < most ? blocks : most;
    const int64_t stride = 32 * piece + kPadBytes / sizeof *x;
    for (int64_t first = 0; first < blocks; first += piece) {
      const int64_t count = blocks - first < piece ? blocks - first : piece;
      for (int64_t r = 0; r < s.rows; ++r) Dense::stage_row(a, s.row + r, 32 * first, count, x + r * stride);
      block_of_tiles(DenseKernel<Dense>{a, bytes, s, x, stride, first, count, first + count == blocks, sums, turned}, s);
    }
  };
  run_units(a, step, lane, bytes, kBlockRows, kTilePanels, [&](const Span& s) {
    const int64_t most = kSums / 16 / s.rows / kTilePanels * kTilePanels;  // panels
    for (int64_t p = 0; p < s.panels; p += most)
      unit(Span{s.row, s.rows, s.panel + p, s.panels - p < most ? s.panels - p : most});
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
