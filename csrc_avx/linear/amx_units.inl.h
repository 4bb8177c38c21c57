// How the tile kernels of weights in groups share out their work: units are (block of rows, panels), rows in whole tiles of 16.
//
// What is unpacked of a weight serves all rows of a unit, what is copied of the inputs all of its panels.
#pragma once
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kLeastRows = 64;  // of a block that is cut for more threads
constexpr int64_t kUnitsEach = 6;   // of a thread, so that threads end together

// Calls body(span) for the units of this thread: blocks of up to `most_rows`, as even as whole tiles allow, and up to `most_panels`,
// where that leaves enough units in whole groups of `wide`.
template <class Body>
inline void run_tile_units(const LinearArgs& a, const Step& step, const Lane& lane, int64_t most_rows, int64_t most_panels, int64_t wide,
                           Body&& body) {
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  if (rows == 0) return;
  const int64_t wanted = lane.num_threads > 1 ? kUnitsEach * lane.num_threads : 1;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  while (most_rows > kLeastRows && panels * ((rows + most_rows - 1) / most_rows) < wanted) most_rows /= 2;
  const int64_t blocks = (rows + most_rows - 1) / most_rows, fair = panels * blocks / wanted;
  const int64_t group = fair > most_panels ? most_panels : fair >= wide ? fair / wide * wide : fair > 1 ? fair : 1;
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
