// How the vector kernels of `linear` share out their work, for every level and format.
//
// Units are (group of panels, block of rows). A group is small enough to stay in a core's L2 while the rows of a block stream
// past it, and large enough to be read from memory in long runs. Inside a unit rows come in tiles of up to Tile::kRows, so
// that a weight is unpacked once for several rows. No sum depends on how the work is cut.
#pragma once
#include "packed/panels.h"
#include "ref/epilogue.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
using F = V::F;
using I = V::I;
constexpr int kParts = 16 / V::kLanes;  // vectors per panel

constexpr int64_t kGroupBytes = 192 << 10;  // of packed weights: less than half of the smallest L2 served
constexpr int64_t kRunBytes = 24 << 10;     // shortest run of memory worth claiming when rows are few

struct Span {
  int64_t row, rows;      // of the tile
  int64_t panel, panels;  // of the group
  int64_t next = 0;       // panel that this thread is likely to read after these
  bool is_first = false;  // of this thread: its inputs are not in its caches yet
};

// Calls body(span) for every (row tile, panel group) of this thread. Groups hold whole tiles of `tile_panels` where rows fill tiles.
template <int max_rows, int tile_panels = 1, class Body>
inline void run_tiles(const LinearArgs& a, const Step& step, const Lane& lane, int64_t panel_bytes, Body&& body) {
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  if (rows == 0) return;
  const int64_t row_block = 16 * max_rows;
  const int64_t blocks = (rows + row_block - 1) / row_block;
  const int64_t fair = panels * blocks / (4 * lane.num_threads);  // at least four units per thread where it can be
  const int64_t run = (rows <= max_rows ? kRunBytes : 1) / panel_bytes + 1;
  int64_t group = kGroupBytes / panel_bytes;
  group = fair < group ? fair : group;
  group = group > run ? group : run;
  if (rows >= max_rows) group = round_up(group, tile_panels);
  const int64_t groups = (panels + group - 1) / group;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t panel = unit / blocks * group, first = unit % blocks * row_block;
      const int64_t last = first + row_block < rows ? first + row_block : rows;
      const int64_t count = panel + group < panels ? group : panels - panel;
      for (int64_t r = first; r < last; r += max_rows)
        body(Span{r, last - r < max_rows ? last - r : max_rows, panel, count});
    }
}

// With few rows a kernel runs at the speed of memory: asks for `bytes` that come `kAhead` later. The hardware's own prefetch
// stops at each 4 KiB page and costs a fifth of the bandwidth. Addresses beyond the weight are harmless.
constexpr int64_t kAhead = 8192;
constexpr int kFewRows = 3;

template <int64_t bytes>
inline void prefetch_ahead(const uint8_t* record) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(record + kAhead + i, 0, 3);
}

inline F half_part(const uint8_t* halves, int part) {
  return V::load_f16(reinterpret_cast<const uint16_t*>(halves) + part * V::kLanes);
}

template <int R>
inline void finish_rows(const LinearArgs& a, int64_t row, int64_t panel, const F (&acc)[R][kParts]) {
  for (int r = 0; r < R; ++r) {
    alignas(64) float sums[16];
    for (int p = 0; p < kParts; ++p) V::store(sums + p * V::kLanes, acc[r][p]);
    finish<V>(a, row + r, panel * kPanel, sums);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
