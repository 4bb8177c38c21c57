// Weights in groups of 32, 64 or 128 inputs with a float scale each, on AMX tiles: TDPBSSD, exact int32 sums.
//
// Per group, in order: acc = fma(float(isum), s_a * d, acc), with a minimum then acc = fma(float(asum), s_a * m, acc). Codes become
// signed bytes less their zero point when they are unpacked, so that a product is isum itself.
//
// Folding sets the pace. While tile instructions are in flight, multiplications, fmas and conversions have one port (two without),
// additions two: of 16 rows, products of scales and fmas take 32 cycles, the tile's product 16. So isum is not converted: C starts
// at 1.5 * 2^23, as a float, from one product of bfloat16 constants; integers added to its bits count its last place, and one
// float addition takes it off again (|isum| < 2^22). The sums of 16 rows x 16 outputs stay in registers for all groups of a chunk.
// C is stored two products late and read two later: a store of a tile is not forwarded to loads, and holds up what follows it.
//
// Codes are unpacked once for up to 256 rows, a few panels of a chunk of inputs at a time; rows are copied into whole tiles, since
// as they lie they would collide in L1. Products run on from panel to panel and tile to tile, so that tiles never drain.
#pragma once
#include "exec/ask.h"
#include "linear/amx_units.inl.h"
#include "linear/planes.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kUnitRows = 256;
constexpr int64_t kUnitPanels = 32;

// Of groups of so many inputs: inputs of a chunk, panels that are unpacked together.
template <int64_t group>
constexpr int64_t kChunkInputs = group < 64 ? 512 : 1024;
template <int64_t group>
constexpr int64_t kPanelsAtOnce = group < 64 ? 4 : 2;
constexpr int64_t kLate = 2;  // products between a product and the store of its C, and again to its fold

// A panel's group, unpacked: B, inputs in fours x 16 outputs, and what folding needs.
template <int64_t group, bool uses_min>
struct UnpackedGroup {
  alignas(64) int8_t codes[16 * group];
  float d[uses_min ? 32 : 16];  // then minima
};

// Scales and sums of a row's inputs in a chunk's groups.
struct RowScales {
  alignas(64) float scales[16], sums[16];
};

template <class Format>
struct GroupWork {
  static constexpr int64_t kGroups = kChunkInputs<Format::kGroup> / Format::kGroup;
  alignas(64) int32_t sums[2 * kLate][16][16];  // C
  alignas(64) uint16_t ones[16][2];             // A and B of the constant
  alignas(64) uint16_t start[32];
  UnpackedGroup<Format::kGroup, Format::kUsesMin> groups[kPanelsAtOnce<Format::kGroup> * kGroups];  // of one panel, then of the next
  RowScales rows[kUnitRows];
  alignas(64) int8_t x[kUnitRows / 16][16 * kChunkInputs<Format::kGroup>];  // A: tiles [16][min(group, 64)]
  alignas(64) float out[16][16];
  alignas(64) float acc[kUnitPanels][kUnitRows][16];
};

// Row tiles times panels of a chunk, in this order: all groups of a panel, panels, tiles.
template <int64_t group, bool uses_min>
struct GroupRun {
  const int8_t* x;
  const UnpackedGroup<group, uses_min>* unpacked;
  const RowScales* rows;
  float (*acc)[16];  // of the first panel
  int32_t (*sums)[16][16];
  float (*out)[16];
  float* to;  // sums or, of the last chunk, y of the first tile and panel; strides between rows and panels
  int64_t stride, panel_stride;
  const LinearArgs* ends;  // in the last chunk
  bool is_plain;           // sums are y
  int64_t row, col;        // of y
  int64_t last_rows;       // of the last tile
  int64_t tiles, panels, groups;
  bool is_first;  // sums start with this chunk
};

// y of a tile whose sums are complete.
__attribute__((noinline)) inline void finish_sums(const LinearArgs& a, int64_t row, int64_t col, int64_t rows, float (*sums)[16]) {
  if (rows == 16) return finish_tile<V, 16, 1>(a, row, col, sums[0]);
  for (int64_t r = 0; r < rows; ++r) finish<V>(a, row + r, col, sums[r]);
}

// Tiles: 0-3 C, 4 A, 5 and 7 the constant's A and B, 6 B. Tile numbers must be literals: the intrinsics paste them into names.
#define OCTAVO_GROUP(c)                                       \
  do {                                                        \
    _tile_zero(c);                                            \
    _tile_dpbf16ps(c, 5, 7);                                  \
    _Pragma("GCC unroll 2")                                   \
    for (int64_t i = 0; i < group; i += kDepth) {             \
      _tile_loadd(4, x + 16 * i, kDepth);                     \
      _tile_loadd(6, codes + 16 * i, 64);                     \
      _tile_dpbssd(c, 4, 6);                                  \
    }                                                         \
  } while (0)

template <int64_t group, int c>
__attribute__((always_inline)) inline void group_product(const int8_t* x, const int8_t* codes) {
  constexpr int64_t kDepth = group < 64 ? group : 64;
  if constexpr (c == 0) OCTAVO_GROUP(0);
  if constexpr (c == 1) OCTAVO_GROUP(1);
  if constexpr (c == 2) OCTAVO_GROUP(2);
  if constexpr (c == 3) OCTAVO_GROUP(3);
}
#undef OCTAVO_GROUP

template <int c>
__attribute__((always_inline)) inline void store_sums(int32_t (*sums)[16][16]) {
  if constexpr (c == 0) _tile_stored(0, sums[0], 64);
  if constexpr (c == 1) _tile_stored(1, sums[1], 64);
  if constexpr (c == 2) _tile_stored(2, sums[2], 64);
  if constexpr (c == 3) _tile_stored(3, sums[3], 64);
}

// Where products, or folds, have come to.
template <int64_t group, bool uses_min>
struct GroupAt {
  const UnpackedGroup<group, uses_min>* of;
  int64_t groups, panels;  // left of the panel, of the tile

  // To the next group; returns whether it is another panel's, and the second time whether it is another tile's.
  __attribute__((always_inline)) bool next(const GroupRun<group, uses_min>& run) {
    ++of;
    if (--groups) return false;
    groups = run.groups;
    return true;
  }
  __attribute__((always_inline)) bool next_panel(const GroupRun<group, uses_min>& run) {
    if (--panels) return false;
    panels = run.panels;
    of = run.unpacked;
    return true;
  }
};

template <int64_t group, bool uses_min, int R>
struct TileSums {
  using Run = GroupRun<group, uses_min>;
  F v[R];
  GroupAt<group, uses_min> fold_at, product_at;
  const int8_t* x;
  const float* rows;
  int64_t tile = 0;

  // Sums of this panel and row tile as they wait between chunks; where those of row tile `t` go: there, or to y.
  __attribute__((always_inline)) const float* acc(const Run& run) const {
    return run.acc[16 * tile] + (run.panels - fold_at.panels) * (16 * kUnitRows);
  }
  __attribute__((always_inline)) float* outputs(const Run& run, int64_t t) const {
    return run.to + 16 * run.stride * t + (run.panels - fold_at.panels) * run.panel_stride;
  }
  __attribute__((always_inline)) void load(const Run& run) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) v[r] = run.is_first ? V::zero() : V::load(acc(run) + 16 * r);
  }

  __attribute__((always_inline)) void fold(const Run& run, const int32_t (*sums)[16]) {
    const auto* of = fold_at.of;
    const F d = V::load(of->d), m = uses_min ? V::load(of->d + 16) : V::zero(), start = V::broadcast(-12582912.0f);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F s = V::broadcast(rows[32 * r]), isum = V::add(V::from_bits(load_bytes(sums[r])), start);
      v[r] = V::fma(isum, V::mul(s, d), v[r]);
      if constexpr (uses_min) v[r] = V::fma(V::broadcast(rows[32 * r + 16]), V::mul(s, m), v[r]);
    }
    ++rows;
    ask_for_outputs(run);
    if (fold_at.next(run)) end_panel(run);
  }

  // Some of the lines where this panel's sums of the next tile go: until they are in L1, nothing stored later is seen by loads
  // that no store forwards to, such as a fold's.
  __attribute__((always_inline)) void ask_for_outputs(const Run& run) const {
    const float* to = outputs(run, tile + 1);
    for (int64_t r = fold_at.groups - 1; r < R; r += run.groups) __builtin_prefetch(to + run.stride * r, 1, 3);
  }

  __attribute__((always_inline)) void end_panel(const Run& run) {
    if (!run.ends || (R == 16 && run.is_plain)) {
      float* to = outputs(run, tile);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) V::store(to + run.stride * r, v[r]);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) V::store(run.out[r], v[r]);
      const int64_t row = run.row + 16 * tile, col = run.col + kPanel * (run.panels - fold_at.panels);
      finish_sums(*run.ends, row, col, tile + 1 < run.tiles ? 16 : run.last_rows, run.out);
    }
    rows -= run.groups;
    if (fold_at.next_panel(run)) {
      rows += 32 * 16;
      ++tile;
    }
    load(run);
  }

  template <int c>
  __attribute__((always_inline)) void product(const Run& run) {
    group_product<group, c>(x, product_at.of->codes);
    x += 16 * group;
    if (product_at.next(run)) {
      x -= 16 * group * run.groups;
      if (product_at.next_panel(run)) x += 16 * kChunkInputs<group>;
    }
  }

  // Products i .. i + 3 of `count`, stores of earlier ones, folds of those before. `is_whole`: there are all of these.
  template <bool is_whole>
  __attribute__((always_inline)) void steps(const Run& run, int64_t i, int64_t count) {
    each<0, 4>([&](auto c) __attribute__((always_inline)) {
      before_tiles();
      if (is_whole || i + c < count) product<c>(run);
      if (is_whole || (i + c >= kLate && i + c - kLate < count)) store_sums<(c + kLate) % 4>(run.sums);
      before_tiles();
      if (is_whole || (i + c >= 2 * kLate && i + c - 2 * kLate < count)) fold(run, run.sums[c]);
    });
  }
};

template <int64_t group, bool uses_min, int R>
__attribute__((noinline)) void run_groups_of(const GroupRun<group, uses_min>& of) {
  static_assert(2 * kLate == 4, "steps come in fours");
  const GroupRun<group, uses_min> run = of;
  TileSums<group, uses_min, R> tile;
  tile.fold_at = tile.product_at = {run.unpacked, run.groups, run.panels};
  tile.x = run.x;
  tile.rows = run.rows->scales;
  tile.load(run);
  const int64_t count = run.tiles * run.panels * run.groups;
  tile.template steps<false>(run, 0, count < 4 ? count : 4);
  int64_t i = 4;
#pragma GCC unroll 1
  for (; i + 4 <= count; i += 4) tile.template steps<true>(run, i, count);
#pragma GCC unroll 1
  for (; i < count + 4; i += 4) tile.template steps<false>(run, i, count);
}

// Two rows of x, side by side in A tiles.
template <int64_t group>
inline void copy_pair(const int8_t* x, const int8_t* other, int64_t inputs, int8_t* to) {
  if constexpr (group >= 64) {
    for (int64_t i = 0; i < inputs; i += 64, to += 1024) {
      _mm512_store_si512(to, load_bytes(x + i));
      _mm512_store_si512(to + 64, load_bytes(other + i));
    }
  } else {
    const auto half = [](const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
    for (int64_t i = 0; i < inputs; i += 32, to += 512)
      _mm512_store_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(half(x + i)), half(other + i), 1));
  }
}

// Rows of a unit over `groups` groups from `first`, as A tiles, with their scales and sums. Missing rows have scale 0.
template <class Format>
inline void copy_inputs(const LinearArgs& a, const Span& s, int64_t first, int64_t groups, GroupWork<Format>* w) {
  constexpr int64_t kGroup = Format::kGroup, kDepth = kGroup < 64 ? kGroup : 64;
  const __mmask16 all = static_cast<__mmask16>((1u << groups) - 1);
  const int8_t* x = static_cast<const int8_t*>(a.x) + s.row * a.ldx + first * kGroup;
  for (int64_t r = 0; r < s.rows; r += 2, x += 2 * a.ldx) {
    const int8_t* other = r + 1 < s.rows ? x + a.ldx : x;
    ask_for(x + 2 * a.ldx, groups * kGroup);  // addresses beyond the inputs are harmless
    ask_for(x + 3 * a.ldx, groups * kGroup);
    copy_pair<kGroup>(x, other, groups * kGroup, w->x[r / 16] + r % 16 * kDepth);
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t entry = (s.row + r) * a.lds + first;
    V::store(w->rows[r].scales, _mm512_maskz_loadu_ps(all, a.scales + entry));
    if (Format::kUsesMin) V::store(w->rows[r].sums, V::cvt_f32(_mm512_maskz_loadu_epi32(all, a.sums + entry)));
  }
  for (int64_t r = s.rows; r % 16; ++r) w->rows[r] = RowScales{};
}

// The tiles' configuration, loaded where rows of a tile differ from the last ones', and the constant; released at the end.
template <class Format>
class GroupTiles {
 public:
  explicit GroupTiles(const GroupWork<Format>* w) : w_(w) {}
  ~GroupTiles() { _tile_release(); }
  GroupTiles(const GroupTiles&) = delete;
  GroupTiles& operator=(const GroupTiles&) = delete;

  void of_rows(int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    constexpr int kDepth = Format::kGroup < 64 ? Format::kGroup : 64;
    TileConfig config;
    for (int c = 0; c < 6; ++c) config.set(c, static_cast<int>(rows), c < 4 ? 64 : c == 4 ? kDepth : 4);
    config.set(6, kDepth / 4, 64);
    config.set(7, 1, 64);
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_loadd(5, w_->ones, 4);
    _tile_loadd(7, w_->start, 64);
  }

 private:
  const GroupWork<Format>* w_;
  int64_t rows_ = 0;
};

// Row tiles [from, to) of a unit, all of `rows` rows, times panels that have been unpacked.
template <class Format>
inline void row_tiles(const Span& s, int64_t from, int64_t to, int64_t rows, int64_t panel,
                      GroupRun<Format::kGroup, Format::kUsesMin> run, GroupWork<Format>* w, GroupTiles<Format>* shape) {
  shape->of_rows(rows);
  run.tiles = to - from;
  run.x = w->x[from];
  run.unpacked = w->groups;
  run.rows = w->rows + 16 * from;
  run.acc = w->acc[panel] + 16 * from;
  run.sums = w->sums;
  run.out = w->out;
  run.is_plain = run.is_plain && rows == 16;
  run.row = s.row + 16 * from;
  run.col = (s.panel + panel) * kPanel;
  run.last_rows = rows;
  run.to = run.ends ? run.ends->y + run.row * run.ends->ldy + run.col : run.acc[0];
  if (rows > 8)
    run_groups_of<Format::kGroup, Format::kUsesMin, 16>(run);
  else
    run_groups_of<Format::kGroup, Format::kUsesMin, 8>(run);
}

template <class Format>
inline void groups_unit(const LinearArgs& a, const Format& format, const Span& s, int64_t panel_bytes, GroupWork<Format>* w) {
  constexpr int64_t kPanels = kPanelsAtOnce<Format::kGroup>;
  constexpr int64_t kMost = kChunkInputs<Format::kGroup> / Format::kGroup;
  const int64_t groups = round_up(a.k, Format::kGroup) / Format::kGroup, chunks = (groups + kMost - 1) / kMost;
  const int64_t whole = s.rows / 16, rest = s.rows % 16;
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + s.panel * panel_bytes;
  for (int r = 0; r < 16; ++r) {
    w->ones[r][0] = 0x4580;  // 4096
    w->ones[r][1] = 0;
    w->start[2 * r] = 0x4540;  // 3072
    w->start[2 * r + 1] = 0;
  }
  GroupTiles<Format> shape(w);
  const bool is_plain = a.scale == 1.0f && !a.bias && a.activation == kNone && !a.gate && !a.residual && !a.narrow;
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t first = groups * c / chunks, count = groups * (c + 1) / chunks - first;
    copy_inputs<Format>(a, s, first, count, w);
    GroupRun<Format::kGroup, Format::kUsesMin> run{};
    run.groups = count;
    run.is_first = c == 0;
    run.ends = c + 1 == chunks ? &a : nullptr;
    run.stride = run.ends ? a.ldy : 16;
    run.panel_stride = run.ends ? kPanel : 16 * kUnitRows;
    for (int64_t p = 0; p < s.panels; p += kPanels) {
      run.panels = s.panels - p < kPanels ? s.panels - p : kPanels;
      run.is_plain = is_plain && (s.panel + p + run.panels) * kPanel <= a.n;
      auto* to = w->groups;
      for (int64_t i = 0; i < run.panels; ++i) {
        const uint8_t* record = weight + (p + i) * panel_bytes + first * format.bytes();
        for (int64_t g = 0; g < count; ++g, record += format.bytes(), ++to) format.unpack(record, to->codes, to->d);
      }
      if (whole) row_tiles<Format>(s, 0, whole, 16, p, run, w, &shape);
      if (rest) row_tiles<Format>(s, whole, whole + 1, rest, p, run, w, &shape);
    }
  }
}

template <class Format>
inline void run_groups(const LinearArgs& a, const Step& step, const Lane& lane) {
  using Work = GroupWork<Format>;
  static_assert(sizeof(Work) <= kScratchBytes, "scratch is per thread");
  const Format format(a.flags);
  const int64_t panel_bytes = round_up(a.k, Format::kGroup) / Format::kGroup * format.bytes();
  run_tile_units(a, step, lane, kUnitRows, kUnitPanels, kPanelsAtOnce<Format::kGroup>,
                 [&](const Span& s) { groups_unit(a, format, s, panel_bytes, static_cast<Work*>(lane.scratch)); });
}

// 32 nibbles x 16 outputs less `zeros` (of every output, in each byte of its lane) -> bytes: low ones are inputs 0..15, high 16..31.
inline void unpack_nibbles(const uint8_t* packed, I zeros, int8_t* codes) {
  const I mask = bytes_of(15);
  for (int c = 0; c < 4; ++c) {
    const I pair = load_bytes(packed + 64 * c);
    _mm512_store_si512(codes + 64 * c, _mm512_sub_epi8(and_bits(pair, mask), zeros));
    _mm512_store_si512(codes + 256 + 64 * c, _mm512_sub_epi8(high_nibbles(pair, mask), zeros));
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
