// How tiles of R rows x C panels share out a product: which rows and panels come next, and which weights are asked for ahead.
//
// A Kernel is an object with kRows and kPanels, of a full tile, kSingles (rows up to which long panels go one by one), panel_bytes
// and tile<R, C>(at). No sum depends on how the work is cut.
#pragma once
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Where a tile is. The tiles of a block that read the same panels take turns in asking for the panels that come next, so that
// memory is never idle while products are computed.
struct TileAt {
  int64_t row, panel;
  int64_t turn, turns;
};

template <int C>
class Ahead {
 public:
  Ahead(const TileAt& at, int64_t panel_bytes)
      : panel_bytes_(panel_bytes), distance_(C == 1 && at.turns == 1 ? kAhead : C * panel_bytes), turns_(at.turns), left_(at.turn) {}

  // For a record of every panel: called once for each. Several panels ahead is too far for L1.
  __attribute__((always_inline)) void ask(const uint8_t* record, int64_t bytes) {
    if (left_-- != 0) return;
    left_ = turns_ - 1;
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
      for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(record + c * panel_bytes_ + distance_ + i), C == 1 ? _MM_HINT_T0 : _MM_HINT_T1);
  }

 private:
  const int64_t panel_bytes_, distance_, turns_;
  int64_t left_;
};

template <int C, class Kernel, int R = Kernel::kRows>
inline void tile_of_rows(const Kernel& kernel, int64_t rows, const TileAt& at) {
  static_assert(C == 1 || Kernel::kRows >= kFewRows + 2, "five rows and more, in even tiles, are three and more to a tile");
  constexpr int kLeast = C > 1 ? 3 : 1;
  if constexpr (R > kLeast) {
    if (rows < R) return tile_of_rows<C, Kernel, R - 1>(kernel, rows, at);
  }
  kernel.template tile<R, C>(at);
}

// Panels from `panel` to the end of the span C at a time, while there are as many; returns the first that is left.
template <int C, class Kernel>
inline int64_t tiles_of_panels(const Kernel& kernel, const Span& s, int64_t panel) {
  const int64_t tiles = (s.rows + Kernel::kRows - 1) / Kernel::kRows;
  for (; panel + C <= s.panel + s.panels; panel += C)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = s.rows * t / tiles, rows = s.rows * (t + 1) / tiles - first;
      tile_of_rows<C>(kernel, rows, TileAt{s.row + first, panel, t, tiles});
    }
  return panel;
}

constexpr int kStreamRows = 12;             // up to here memory sets the pace
constexpr int64_t kStreamBytes = 24 << 10;  // of panels that are asked for together, beside those in use

// All rows of a few panels, then of the next, in tiles as even as can be: panels are read from memory once, and the inputs of a
// block stay in L2. With few rows memory sets the pace, and serves one stream better than several.
template <class Kernel>
inline void block_of_tiles(const Kernel& kernel, const Span& s) {
  int64_t panel = s.panel;
  if constexpr (Kernel::kPanels > 2) {
    if (s.rows > kStreamRows) panel = tiles_of_panels<Kernel::kPanels>(kernel, s, panel);
  }
  if constexpr (Kernel::kPanels > 1) {
    const bool is_single = s.rows <= Kernel::kSingles && 2 * kernel.panel_bytes > kStreamBytes;
    if (s.rows > kFewRows && !is_single) panel = tiles_of_panels<2>(kernel, s, panel);
  }
  tiles_of_panels<1>(kernel, s, panel);
}

constexpr int64_t kBlockBytes = 384 << 10;  // of a block's int8 inputs
constexpr int kUnitsPerThread = 8;          // so that threads end together

// Calls body(span) for the units (group of panels, block of rows) of this thread, both as even as can be: blocks of up to `most`
// rows, groups of whole tiles of `wide` panels.
template <class Body>
inline void run_units(const LinearArgs& a, const Step& step, const Lane& lane, int64_t panel_bytes, int64_t most, int64_t wide,
                      Body&& body) {
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  if (rows == 0) return;
  const int64_t blocks = (rows + most - 1) / most;
  const int64_t run = (rows <= kFewRows + 2 ? kRunBytes : 1) / panel_bytes + 1;
  int64_t group = panels * blocks / (kUnitsPerThread * lane.num_threads);
  group = group > run ? group : run;
  const int64_t fair = (panels + group - 1) / group;
  group = round_up((panels + fair - 1) / fair, rows > kFewRows ? wide : 1);
  const int64_t groups = (panels + group - 1) / group;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t panel = unit / blocks * group, block = unit % blocks;
      const int64_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
      body(Span{first, last - first, panel, panel + group < panels ? group : panels - panel});
    }
}

// Tiles of a Kernel of int8 inputs, {a, panel_bytes}, for this thread.
template <class Kernel>
inline void run_kernel(const LinearArgs& a, const Step& step, const Lane& lane, int64_t panel_bytes) {
  const int64_t tiles = kBlockBytes / a.k / Kernel::kRows;
  const int64_t most = Kernel::kRows * (tiles < 2 ? 2 : tiles > 16 ? 16 : tiles);
  const Kernel kernel{a, panel_bytes};
  run_units(a, step, lane, panel_bytes, most, Kernel::kPanels, [&](const Span& s) { block_of_tiles(kernel, s); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
