// How tiles of R rows x C panels share out a product: which rows and panels come next, and which weights are asked for ahead.
//
// A Kernel is an object with kRows and kPanels, of a full tile, kSingles (rows up to which long panels go one by one), kInputBytes
// (of an input that tiles read where it lies, else 0), panel_bytes and tile<R, C>(at). No sum depends on how the work is cut.
#pragma once
#include "exec/ask.h"
#include "linear/panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Where a tile is. The tiles of a block that read the same panels take turns in asking for the panels that come next, so that
// memory is never idle while products are computed.
struct TileAt {
  int64_t row, panel;
  int64_t turn, turns;
  int64_t end, next;  // panels: where the span ends, and where the next one is likely to begin
};

constexpr int64_t kStreamAhead = 16 << 10;  // bytes

template <int C>
class Ahead {
 public:
  // `record`: the tile's first. Inline by force, and so in registers.
  __attribute__((always_inline)) Ahead(const TileAt& at, const uint8_t* record, int64_t panel_bytes)
      : panel_bytes_(panel_bytes), turns_(at.turns), left_(at.turn) {
    const bool is_stream = C == 1 && at.turns == 1, is_last = at.panel + C >= at.end;
    distance_ = is_stream ? kStreamAhead : (is_last ? at.next - at.panel : C) * panel_bytes;
    jump_ = (at.next - at.end) * panel_bytes;
    jumps_from_ = is_stream ? record + (at.end - at.panel) * panel_bytes - kStreamAhead : reinterpret_cast<const uint8_t*>(UINTPTR_MAX);
  }

  // For a record of every panel: called once for each, before its lines are asked for. Returns whether it is this tile's turn;
  // out of turn lines in use are asked for.
  __attribute__((always_inline)) bool aim(const uint8_t* record) {
    from_ = record;
    if (left_-- != 0) return false;
    left_ = turns_ - 1;
    from_ += distance_ + (record >= jumps_from_ ? jump_ : 0);
    return true;
  }

  // The line at `offset` of the record that was aimed at, to L2: L1 has too few misses in flight for memory and the loads of now.
  __attribute__((always_inline)) void ask(int64_t offset) const {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
      __builtin_prefetch(from_ + c * panel_bytes_ + offset, 0, 2);
  }

  // A whole record at once.
  __attribute__((always_inline)) void ask(const uint8_t* record, int64_t bytes) {
    if (!aim(record)) return;
#pragma GCC unroll 16
    for (int64_t i = 0; i < bytes; i += 64) ask(i);
  }

 private:
  const int64_t panel_bytes_, turns_;
  int64_t distance_, jump_, left_;
  const uint8_t* jumps_from_;
  const uint8_t* from_ = nullptr;
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

template <class Kernel>
inline void ask_for_rows(const Kernel& kernel, int64_t row, int64_t rows) {
  for (int64_t r = row; r < row + rows; ++r)
    ask_for(static_cast<const uint8_t*>(kernel.a.x) + r * kernel.a.ldx * Kernel::kInputBytes, kernel.a.k * Kernel::kInputBytes);
}

// Panels from `panel` to the end of the span C at a time, while there are as many; returns the first that is left.
template <int C, class Kernel>
inline int64_t tiles_of_panels(const Kernel& kernel, const Span& s, int64_t panel) {
  const int64_t tiles = (s.rows + Kernel::kRows - 1) / Kernel::kRows;
  for (; panel + C <= s.panel + s.panels; panel += C)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = s.rows * t / tiles, rows = s.rows * (t + 1) / tiles - first;
      if constexpr (Kernel::kInputBytes > 0) {
        if (s.is_first && panel == s.panel) {
          if (t == 0) ask_for_rows(kernel, s.row, rows);
          if (t + 1 < tiles) ask_for_rows(kernel, s.row + first + rows, s.rows * (t + 2) / tiles - first - rows);
        }
      }
      tile_of_rows<C>(kernel, rows, TileAt{s.row + first, panel, t, tiles, s.panel + s.panels, s.next});
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

// Which units follow each other: all blocks of a group of panels, or all groups of a block of rows.
enum class Order { kGroups, kBlocks };

// Calls body(span) for the units (group of panels, block of rows) of this thread, both as even as can be: blocks of up to `most`
// rows, groups of whole tiles of `wide` panels.
template <Order order = Order::kGroups, class Body>
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
  const bool is_descending = !lane.share->is_front() && lane.num_threads > 1;
  bool is_first = lane.num_threads > 1;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit, is_first = false) {
      const auto group_of = [&](int64_t u) { return order == Order::kGroups ? u / blocks : u % groups; };
      const int64_t panel = group_of(unit) * group, block = order == Order::kGroups ? unit % blocks : unit / groups;
      const int64_t next = is_descending ? unit - 1 : unit + 1;
      const int64_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
      body(Span{first, last - first, panel, panel + group < panels ? group : panels - panel, group_of(next) * group,
                is_first});
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
