// linear_w8a8 at amx: TDPBSUD on tiles of 64 inputs, exact int32 sums.
//
// A B tile is one packed record (64 inputs x 16 outputs), an A tile 16 rows x 64 inputs. Two row tiles meet two panels, so that
// a product costs one tile load. A product takes 16 cycles and a tile from L1 eight, from L2 over twenty: so rows are taken in
// blocks and inputs in chunks, and a chunk of two panels (32 columns x 1,024 inputs, 32 KiB) stays in L1 while the block's rows
// stream past it. Sums wait in scratch between chunks as int32. With few rows memory sets the pace: then a chunk is a whole row
// and sums never leave their tiles. Rows: int8, padded with zeros to a multiple of 64 by prepare_i8row.
#include "linear/tiles.inl.h"
#include "linear/w8a8_end.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kRows = 32;             // of a span: two tiles
constexpr int64_t kBlockRows = 512;   // 512 KiB of a chunk's rows in L2
constexpr int64_t kGroupPanels = 8;   // of a unit
constexpr int64_t kChunk = 16;        // records
constexpr int64_t kStreamRows = 64;   // up to here one pass over a whole row
constexpr int64_t kSpanSums = 2 * kRows * 16;
constexpr int64_t kRecord = record_bytes(PackedKind::w8a8, 0);
static_assert(kGroupPanels / 2 * (kBlockRows / kRows) * kSpanSums * 4 <= kScratchBytes, "scratch is per thread");

// Part of a row, whether sums start with it, and how many bytes ahead weights are asked for (0: not at all).
struct Chunk {
  int64_t records;
  bool is_first;
  int64_t ahead;
};

inline void ask_for(const uint8_t* at) {
  for (int64_t i = 0; i < kRecord; i += 64) _mm_prefetch(reinterpret_cast<const char*>(at + i), _MM_HINT_T1);
}

// Tiles: 0-3 C[row tile][panel], 4-5 A, 6-7 B. sums[panel][32 rows][16].
template <bool two_row_tiles, bool two_panels>
inline void multiply(const int8_t* x, int64_t ldx, const uint8_t* weight, int64_t panel_bytes, const Chunk& chunk, int32_t* sums) {
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
  for (int64_t r = 0; r < chunk.records; ++r, x += 64, weight += kRecord) {
    if (chunk.ahead) {
      ask_for(weight + chunk.ahead);
      if (two_panels) ask_for(weight + panel_bytes + chunk.ahead);
    }
    _tile_loadd(6, weight, 64);
    _tile_loadd(4, x, ldx);
    _tile_dpbsud(0, 4, 6);
    if (two_panels) {
      _tile_loadd(7, weight + panel_bytes, 64);
      _tile_dpbsud(1, 4, 7);
    }
    if (two_row_tiles) {
      _tile_loadd(5, x + 16 * ldx, ldx);
      _tile_dpbsud(2, 5, 6);
      if (two_panels) _tile_dpbsud(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  if (two_panels) _tile_stored(1, sums + 512, 64);
  if (two_row_tiles) _tile_stored(2, sums + 256, 64);
  if (two_row_tiles && two_panels) _tile_stored(3, sums + 768, 64);
  before_tiles();
}

// Spans [from, to) of a block, all of `rows` rows, for one chunk of two panels (or the last one).
inline void spans(const LinearArgs& a, int64_t row, int64_t from, int64_t to, int64_t rows, const uint8_t* weight,
                  int64_t panel_bytes, int64_t first_input, bool two_panels, Chunk chunk, int32_t* sums) {
  const auto run = rows > 16 ? (two_panels ? multiply<true, true> : multiply<true, false>)
                             : (two_panels ? multiply<false, true> : multiply<false, false>);
  const TileConfig config = pairs_config(rows, 16, 64);
  const TileScope scope(config);
  for (int64_t s = from; s < to; ++s, chunk.ahead = 0) {
    const int8_t* x = static_cast<const int8_t*>(a.x) + (row + s * kRows) * a.ldx + first_input;
    run(x, a.ldx, weight, panel_bytes, chunk, sums + s * kSpanSums);
  }
}

// Rows [row, row + rows) times panels [panel, panel + panels).
inline void unit(const LinearArgs& a, int64_t row, int64_t rows, int64_t panel, int64_t panels, int64_t panel_bytes, int32_t* sums) {
  const int64_t records = round_up(a.k, 64) / 64, whole = rows / kRows, rest = rows % kRows, count = whole + (rest != 0);
  const bool is_stream = rows <= kStreamRows;
  const int64_t step = is_stream ? records : kChunk;
  for (int64_t at = 0; at < records; at += step)
    for (int64_t p = 0; p < panels; p += 2) {
      const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + (panel + p) * panel_bytes + at * kRecord;
      const bool two_panels = p + 1 < panels, is_last = at + step >= records;
      const int64_t next = p + 2 < panels ? 2 * panel_bytes : kChunk * kRecord - p * panel_bytes;
      const Chunk chunk{is_last ? records - at : step, at == 0, is_stream ? kAhead : next};
      int32_t* mine = sums + p / 2 * count * kSpanSums;
      if (whole) spans(a, row, 0, whole, kRows, weight, panel_bytes, 64 * at, two_panels, chunk, mine);
      if (rest) spans(a, row, whole, count, rest, weight, panel_bytes, 64 * at, two_panels, chunk, mine);
      if (!is_last) continue;
      for (int c = 0; c < (two_panels ? 2 : 1); ++c)
        for (int64_t r = 0; r < rows; ++r)
          w8a8_end<1, 1>(a, row + r, panel + p + c, mine + r / kRows * kSpanSums + 512 * c + r % kRows * 16);
    }
}

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::w8a8, 0, a.k);
  const int64_t rows = num_rows(a.rows, step), panels = round_up(a.n, kPanel) / kPanel;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t fair = panels * blocks / (4 * lane.num_threads) / 2 * 2;  // four units per thread, of whole pairs
  const int64_t group = fair < 2 ? 2 : fair < kGroupPanels ? fair : kGroupPanels;
  const int64_t groups = (panels + group - 1) / group;
  for (int64_t begin, end; lane.claim(groups * blocks, 1, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u % blocks * kBlockRows, panel = u / blocks * group;
      unit(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, panel, panels - panel < group ? panels - panel : group, bytes,
           static_cast<int32_t*>(lane.scratch));
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
