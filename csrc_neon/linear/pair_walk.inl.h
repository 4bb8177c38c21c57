// Which rows and panels come next where rows are multiplied in pairs.
//
// A panel is walked in runs of records short enough to stay in L1 while all tiles of the block are multiplied with them; sums wait in
// memory between runs. Several tiles share the work of taking codes apart: a run's are made ready once, as bytes in the order of use.
//
// A Kernel has a, panel_bytes, record_bytes(), inputs() of a record, kRunInputs, kSwaps (of 32 inputs the second and the third 8 change
// places: both nibbles of a byte one after the other), and
//   kEndVectors, kSumsPerScale, end(rows, record, at, stride)   what it adds to the staged inputs of a pair, and finds there
//   Ready, open(record, count, is_ready, &ready)                what all tiles share of a run
//   run<pairs, is_ready>(x, record, ready, count, asking, sums) adds a run's products to Sum<pairs>
//   finish<pairs>(at, rows, sums)
#pragma once
#include "linear/pairs.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// The lines that come next, asked for four at a time by the passes of all tiles over a run.
struct Asking {
  const Ahead<1>& ahead;
  int64_t fours, tile, tiles;

  OCTAVO_INLINE void share(int part, int parts) const {
    const int64_t first = 4 * tile + part;
#pragma GCC unroll 4
    for (int64_t four = fours * first / (4 * tiles); four < fours * (first + parts) / (4 * tiles); ++four)
#pragma GCC unroll 4
      for (int line = 0; line < 4; ++line) ahead.ask(256 * four + 64 * line);
  }
};

inline int64_t num_tiles(const Span& s) { return ((s.rows + 1) / 2 + kTilePairs - 1) / kTilePairs; }

template <int P = kTilePairs, class Body>
inline void with_pairs(int64_t pairs, Body&& body) {
  if constexpr (P > 2) {  // of more than kFewRows rows no tile gets a lone pair
    if (pairs < P) return with_pairs<P - 1>(pairs, body);
  }
  body(std::integral_constant<int, P>{});
}

// Calls body(pairs, tile, first row, rows, staged) for the tiles of a block, as even as can be.
template <class Kernel, class Body>
inline void each_tile(const Kernel& kernel, const Span& s, uint8_t* staged, Body&& body) {
  const int64_t pairs = (s.rows + 1) / 2, tiles = num_tiles(s), bytes = num_records(kernel) * staged_bytes(kernel);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = pairs * t / tiles, count = pairs * (t + 1) / tiles - first, left = s.rows - 2 * first;
    with_pairs(count, [&](auto p) {
      constexpr int P = decltype(p)::value;
      body(p, t, s.row + 2 * first, left < 2 * P ? left : 2 * P, staged + first * bytes);
    });
  }
}

template <class Kernel>
inline void panel_of_pairs(const Kernel& kernel, const Span& s, int64_t panel, uint8_t* staged) {
  const int64_t tiles = num_tiles(s), records = num_records(kernel), run = Kernel::kRunInputs / kernel.inputs();
  const TileAt at{s.row, panel, 0, 1, s.panel + s.panels, s.next};
  const uint8_t* record = static_cast<const uint8_t*>(kernel.a.weight) + panel * kernel.panel_bytes;
  Ahead<1> ahead(at, record, kernel.panel_bytes);
  typename Kernel::Ready ready;
  alignas(16) uint8_t sums[kMostPairedRows / (2 * kTilePairs)][kTilePairs * 128];
  for (uint8_t *some = sums[0], *end = sums[tiles]; some < end; some += 256) {
    hide(some);  // pieces that are cleared in place; of all together the compiler would call memset
    std::memset(some, 0, 256);
  }
  const auto sums_of = [&](auto p, int64_t t) -> auto& {
    return *reinterpret_cast<typename Kernel::template Sums<decltype(p)::value>*>(sums[t]);
  };
  for (int64_t r = 0; r < records; r += run) {
    const int64_t count = records - r < run ? records - r : run, bytes = count * kernel.record_bytes();
    ahead.aim(record);
    kernel.open(record, count, tiles > 1, &ready);
    each_tile(kernel, s, staged, [&](auto p, int64_t t, int64_t, int64_t, const uint8_t* x) {
      constexpr int P = decltype(p)::value;
      const Asking asking{ahead, (bytes + 255) / 256, t, tiles};
      x += r * P * staged_bytes(kernel);
      if (P > 2 && tiles > 1)
        kernel.template run<P, true>(x, record, ready, count, asking, sums_of(p, t));
      else
        kernel.template run<P, false>(x, record, ready, count, asking, sums_of(p, t));
    });
    record += bytes;
  }
  each_tile(kernel, s, staged, [&](auto p, int64_t t, int64_t row, int64_t rows, const uint8_t*) {
    kernel.template finish<decltype(p)::value>(TileAt{row, panel, t, tiles, at.end, at.next}, rows, sums_of(p, t));
  });
}

// Whether this product's rows are multiplied in pairs: not where SDOT by element takes fewer instructions, nor where three pairs cannot
// be staged: of shorter blocks some would have a lone pair, for which there is no tile.
template <class Kernel>
inline bool is_paired(const Kernel& kernel, const Step& step, const Lane& lane) {
  return num_rows(kernel.a.rows, step) > kFewRows && 3 * num_records(kernel) * staged_bytes(kernel) <= lane.scratch_bytes;
}

template <class Kernel>
inline void run_pairs(const Kernel& kernel, const Step& step, const Lane& lane) {
  const int64_t bytes = num_records(kernel) * staged_bytes(kernel);
  const int64_t fit = lane.scratch_bytes / bytes, good = kStagedBytes / bytes;  // pairs
  int64_t pairs = good < 2 * kTilePairs ? 2 * kTilePairs : good;
  pairs = pairs < fit ? pairs : fit;
  if (pairs > kTilePairs) pairs = pairs / kTilePairs * kTilePairs;
  const int64_t most = 2 * pairs < kMostPairedRows ? 2 * pairs : kMostPairedRows;
  auto* staged = static_cast<uint8_t*>(lane.scratch);
  int64_t staged_row = -1;
  run_units<Order::kBlocks>(kernel.a, step, lane, kernel.panel_bytes, most, 1, [&](const Span& s) {
    if (s.row != staged_row)
      each_tile(kernel, s, staged, [&](auto p, int64_t, int64_t row, int64_t rows, uint8_t* at) {
        if (s.is_first) ask_for_rows(kernel, row, rows);
        stage<decltype(p)::value>(kernel, row, rows, at);
      });
    staged_row = s.row;
    for (int64_t panel = s.panel; panel < s.panel + s.panels; ++panel) panel_of_pairs(kernel, s, panel, staged);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
