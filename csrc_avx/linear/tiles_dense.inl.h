// A product whose sums run over a whole row, on AMX tiles: linear_w8a8 and linear_bf16.
//
// A B tile is one packed record (64 bytes of a row's inputs x 16 outputs), an A tile 16 rows x 64 bytes. Two row tiles meet two
// panels, so that each loaded tile is used twice: four products take 64 cycles, their loads from L1 32. Rows are taken in blocks
// that stay in L2 and inputs in chunks of up to 1 KiB a row: a chunk of two panels (32 KiB) stays in L1 while the block's rows
// stream past it with the hint that they will not be read again soon (TILELOADDT1; without it they push the panels out, and a
// quarter of the speed is lost). Sums wait in scratch between chunks, which is exact: int32 sums are, and the order of bfloat16
// adds record after record to one float32. Where a row is one chunk, or rows are so few that memory sets the pace, sums
// never leave L1. Rows are padded with zeros to whole records; their stride is no multiple of 4 KiB, or they would share a cache set.
#pragma once
#include "linear/panels.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kSpanRows = 32;         // two tiles
constexpr int64_t kBlockRows = 512;   // of a chunk: 512 KiB in L2
constexpr int64_t kGroupPanels = 8;   // of a unit
constexpr int64_t kChunk = 16;        // records
constexpr int64_t kStreamRows = 64;   // up to here one pass over a whole row
constexpr int64_t kSpanSums = 2 * kSpanRows * 16;
constexpr int64_t kRecord = 1024;
constexpr int64_t kRowBytes = 64;     // of a record
constexpr int kEndRows = 8;           // that end together
static_assert(kGroupPanels / 2 * (kBlockRows / kSpanRows) * kSpanSums * 4 <= kScratchBytes, "scratch is per thread");

// Part of a row, and whether sums start with it. The spans of a block take turns in asking for the weights that come `ahead`
// bytes later.
struct Chunk {
  int64_t records;
  bool is_first;
  int64_t ahead, turn, turns;
};

inline void ask_for_record(const uint8_t* at) {
  for (int64_t i = 0; i < kRecord; i += 64) _mm_prefetch(reinterpret_cast<const char*>(at + i), _MM_HINT_T1);
}

// Sums of a span that became whole: the next span turns them into outputs between its products, which leave the vector units idle.
// Done at once they would cost the latency of the last products and of their stores, and tiles would wait for them.
template <class Kind>
struct Ends {
  const LinearArgs* a = nullptr;
  int64_t row = 0, panel = 0;
  int rows = 0, count = 0, done = 0;  // of a panel; of both panels, and how many of these were turned into outputs
  typename Kind::Sum* sums = nullptr;

  // What is due of them after record r of `records`.
  void some(int64_t r, int64_t records) {
    const int due = static_cast<int>((r + 1) * count / records);
    while (done < due) one();
  }
  void all() {
    while (done < count) one();
  }

 private:
  void one() {
    const int second = done >= rows, r = done - (second ? rows : 0);
    auto* at = sums + second * (kSpanSums / 2) + 16 * r;
    if (r + kEndRows <= rows) {
      Kind::template end<kEndRows>(*a, row + r, panel + second, at);
      done += kEndRows;
    } else {
      Kind::template end<1>(*a, row + r, panel + second, at);
      ++done;
    }
  }
};

// Tile numbers must be literals: the compilers' intrinsics paste them into register names.
#define OCTAVO_PRODUCT(c, a, b)    \
  do {                             \
    if constexpr (Kind::kIsInt)    \
      _tile_dpbsud(c, a, b);       \
    else                           \
      _tile_dpbf16ps(c, a, b);     \
  } while (0)

// Tiles: 0-3 C[row tile][panel], 4-5 A, 6-7 B. sums[panel][32 rows][16].
template <class Kind, bool two_row_tiles, bool two_panels>
inline void multiply(const uint8_t* x, int64_t row_bytes, const uint8_t* weight, int64_t panel_bytes, const Chunk& chunk,
                     Ends<Kind>& ends, typename Kind::Sum* sums) {
  before_tiles();
  if (chunk.is_first) {
    _tile_zero(0);
    if (two_panels) _tile_zero(1);
    if (two_row_tiles) _tile_zero(2);
    if (two_row_tiles && two_panels) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if (two_panels) _tile_loadd(1, sums + 512, 64);
    if (two_row_tiles) _tile_loadd(2, sums + 256, 64);
    if (two_row_tiles && two_panels) _tile_loadd(3, sums + 768, 64);
  }
  int64_t left = chunk.turn;
  for (int64_t r = 0; r < chunk.records; ++r, x += kRowBytes, weight += kRecord) {
    if (left-- == 0) {
      left = chunk.turns - 1;
      ask_for_record(weight + chunk.ahead);
      if (two_panels) ask_for_record(weight + panel_bytes + chunk.ahead);
    }
    _tile_loadd(6, weight, 64);
    _tile_stream_loadd(4, x, row_bytes);
    OCTAVO_PRODUCT(0, 4, 6);
    if (two_panels) {
      _tile_loadd(7, weight + panel_bytes, 64);
      OCTAVO_PRODUCT(1, 4, 7);
    }
    if (two_row_tiles) {
      _tile_stream_loadd(5, x + 16 * row_bytes, row_bytes);
      OCTAVO_PRODUCT(2, 5, 6);
      if (two_panels) OCTAVO_PRODUCT(3, 5, 7);
    }
    ends.some(r, chunk.records);
  }
  _tile_stored(0, sums, 64);
  if (two_panels) _tile_stored(1, sums + 512, 64);
  if (two_row_tiles) _tile_stored(2, sums + 256, 64);
  if (two_row_tiles && two_panels) _tile_stored(3, sums + 768, 64);
  before_tiles();
}
#undef OCTAVO_PRODUCT

// Rows [row, row + rows) times panels [panel, panel + panels).
template <class Kind>
struct Unit {
  const LinearArgs& a;
  int64_t row, rows, panel, panels, panel_bytes;
  typename Kind::Sum* sums;

  void run() const {
    const int64_t records = round_up(a.k, Kind::kInputs) / Kind::kInputs;
    const int64_t passes = rows <= kStreamRows ? 1 : (records + kChunk - 1) / kChunk, step = (records + passes - 1) / passes;
    const int64_t whole = rows / kSpanRows;
    for (int64_t at = 0; at < records; at += step) {
      const int64_t count = records - at < step ? records - at : step;
      if (whole) spans(0, whole, kSpanRows, at, count, passes);
      if (rows % kSpanRows) spans(whole, whole + 1, rows % kSpanRows, at, count, passes);
    }
  }

 private:
  // Spans [from, to), all of `span_rows` rows, for inputs [at, at + count) in records, in that many passes.
  void spans(int64_t from, int64_t to, int64_t span_rows, int64_t at, int64_t count, int64_t passes) const {
    const int64_t row_bytes = a.ldx * kRowBytes / Kind::kInputs, all = (rows + kSpanRows - 1) / kSpanRows;
    const bool is_last = at * Kind::kInputs + count * Kind::kInputs >= a.k;
    const TileConfig config = pairs_config(span_rows, 16, kRowBytes);
    const TileScope scope(config);
    Ends<Kind> ends;
    int64_t turn = 0;  // of the two places of sums where a row is one pass
    for (int64_t p = 0; p < panels; p += 2) {
      const bool two_panels = p + 1 < panels;
      const auto multiply_span = span_rows > 16 ? (two_panels ? multiply<Kind, true, true> : multiply<Kind, true, false>)
                                                : (two_panels ? multiply<Kind, false, true> : multiply<Kind, false, false>);
      const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + (panel + p) * panel_bytes + at * kRecord;
      const int64_t next = passes == 1 || p + 2 < panels ? 2 * panel_bytes : count * kRecord - p * panel_bytes;
      Chunk chunk{count, at == 0, rows <= kStreamRows ? kAhead : next, from, all};
      for (int64_t s = from; s < to; ++s, ++chunk.turn) {
        auto* mine = sums + (passes == 1 ? turn++ % 2 : p / 2 * all + s) * kSpanSums;
        const uint8_t* x = static_cast<const uint8_t*>(a.x) + (row + s * kSpanRows) * row_bytes + at * kRowBytes;
        multiply_span(x, row_bytes, weight, panel_bytes, chunk, ends, mine);
        if (!is_last) continue;
        const int count = static_cast<int>(span_rows);
        ends = Ends<Kind>{&a, row + s * kSpanRows, panel + p, count, two_panels ? 2 * count : count, 0, mine};
      }
    }
    ends.all();
  }
};

template <class Kind>
inline void run_dense(const LinearArgs& a, const Step& step, const Lane& lane) {
  const int64_t bytes = panel_bytes(Kind::kPacked, 0, a.k);
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t fair = panels * blocks / (4 * lane.num_threads) / 2 * 2;  // four units per thread, of whole pairs
  const int64_t group = fair < 2 ? 2 : fair < kGroupPanels ? fair : kGroupPanels;
  const int64_t groups = (panels + group - 1) / group;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u % blocks * kBlockRows, panel = u / blocks * group;
      Unit<Kind>{a, row, rows - row < kBlockRows ? rows - row : kBlockRows, panel, panels - panel < group ? panels - panel : group,
                 bytes, static_cast<typename Kind::Sum*>(lane.scratch)}
          .run();
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
