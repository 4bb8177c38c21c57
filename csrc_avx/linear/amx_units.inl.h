// How the tile kernels of weights in groups share out their work: units are (block of rows, panels), rows in whole tiles of 16.
//
// What is unpacked of a weight serves all rows of a unit, what is copied of the inputs all of its panels.
#pragma once
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kUnitRows = 256;
constexpr int64_t kUnitPanels = 32;
constexpr int64_t kUnitsEach = 6;  // of a thread, so that threads end together

// Calls body(span) for the units of this thread: blocks as even as whole tiles allow, panels in groups of whole `wide`.
template <class Body>
inline void run_tile_units(const LinearArgs& a, const Step& step, const Lane& lane, int64_t wide, Body&& body) {
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  if (rows == 0) return;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows, blocks = (rows + kUnitRows - 1) / kUnitRows;
  const int64_t fair = lane.num_threads > 1 ? panels * blocks / (kUnitsEach * lane.num_threads) : panels;
  const int64_t group = fair > kUnitPanels ? kUnitPanels : round_up(fair > 1 ? fair : 1, wide);
  const int64_t groups = (panels + group - 1) / group;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t block = unit % blocks, panel = unit / blocks * group;
      const int64_t first = tiles * block / blocks * kTileRows, last = tiles * (block + 1) / blocks * kTileRows;
      body(Span{first, (last < rows ? last : rows) - first, panel, panel + group < panels ? group : panels - panel});
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
