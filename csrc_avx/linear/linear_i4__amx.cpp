// linear_i4 at amx: TDPBSUD on unpacked nibbles, one group's exact int32 sums at a time.
//
// Each group has its own scale, so that C is stored and folded into float32 sums in scratch after every group of 32, 64 or 128
// inputs. Two row tiles meet two panels: four products per 64 inputs (per 32 in groups of 32, which fill half the depth of a
// tile) for two A and two B loads. Codes of two panels are unpacked once per group for up to 128 rows; unpacked codes (4 KiB), the
// group's rows (16 KiB) and their sums (16 KiB) stay in L1.
#include "linear/bytes.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kRows = 128;  // of a span
constexpr int kSpan = 32;   // two row tiles

struct Work {
  alignas(64) uint8_t codes[2][128 / 4][64];  // of two panels: inputs in fours, 16 outputs
  alignas(64) int32_t sums[2][kSpan][16];     // C of one group
  alignas(64) float acc[2][kRows][16];
};
static_assert(sizeof(Work) <= kScratchBytes, "scratch is per thread");

// The nibbles of `inputs` inputs: low ones are inputs 0..15 of 32, high ones 16..31.
inline void unpack(const uint8_t* packed, int64_t inputs, uint8_t (*codes)[64]) {
  const I mask = bytes_of(15);
  for (int64_t i = 0; i < inputs / 8; i += 4) {
    const int64_t row = 2 * i;
    for (int c = 0; c < 4; ++c) {
      const I pair = load_bytes(packed + 64 * (i + c));
      _mm512_store_si512(codes[row + c], and_bits(pair, mask));
      _mm512_store_si512(codes[row + 4 + c], high_nibbles(pair, mask));
    }
  }
}

// Sums of one group: up to 32 rows of x, two panels. Tiles: 0-3 C[row tile][panel], 4-5 A, 6-7 B, of min(inputs, 64) inputs.
template <bool two_row_tiles, bool two_panels>
inline void multiply(const int8_t* x, int64_t ldx, int64_t inputs, Work* w) {
  before_tiles();
  _tile_zero(0);
  if (two_panels) _tile_zero(1);
  if (two_row_tiles) _tile_zero(2);
  if (two_row_tiles && two_panels) _tile_zero(3);
  for (int64_t i = 0; i < inputs; i += 64) {
    _tile_loadd(6, w->codes[0][i / 4], 64);
    _tile_loadd(4, x + i, ldx);
    _tile_dpbsud(0, 4, 6);
    if (two_panels) {
      _tile_loadd(7, w->codes[1][i / 4], 64);
      _tile_dpbsud(1, 4, 7);
    }
    if (two_row_tiles) {
      _tile_loadd(5, x + i + 16 * ldx, ldx);
      _tile_dpbsud(2, 5, 6);
      if (two_panels) _tile_dpbsud(3, 5, 7);
    }
  }
  _tile_stored(0, w->sums[0][0], 64);
  if (two_panels) _tile_stored(1, w->sums[1][0], 64);
  if (two_row_tiles) _tile_stored(2, w->sums[0][16], 64);
  if (two_row_tiles && two_panels) _tile_stored(3, w->sums[1][16], 64);
  before_tiles();
}

// acc = fma(float(isum), s_a * s, acc) for `rows` rows from `row`, group g; `record` is the group's of this panel.
inline void fold(const LinearArgs& a, const uint8_t* record, int64_t row, int64_t rows, int64_t g, const int32_t (*sums)[16],
                 float (*acc)[16]) {
  const uint8_t* scales = record + group_inputs(a.flags) * kPanel / 2;
  const F s = scale_part(scales, a.flags, 0);
  const I zeros = a.flags & kHasZeros ? widen_u8(scales + scale_bytes(a.flags) * kPanel) : V::ibroadcast(8);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t entry = (row + r) * a.lds + g;
    // |asum| < 2^15: the 16-bit product with a zero point is exact
    const I isum = V::isub(load_bytes(sums[r]), madd16(zeros, V::ibroadcast(a.sums[entry])));
    V::store(acc[r], V::fma(V::cvt_f32(isum), V::mul(V::broadcast(a.scales[entry]), s), V::load(acc[r])));
  }
}

// `rows` rows from s.row + first, in steps of `step` rows (32, or all of them if fewer), times one or two panels.
inline void rows_of(const LinearArgs& a, const Span& s, int64_t first, int64_t rows, int64_t step, int64_t panel, bool two_panels,
                    int64_t panel_bytes, Work* w) {
  const int64_t inputs = group_inputs(a.flags), groups = round_up(a.k, inputs) / inputs, depth = inputs < 64 ? inputs : 64;
  const int64_t bytes = record_bytes(PackedKind::i4, a.flags);
  const auto run = step > 16 ? (two_panels ? multiply<true, true> : multiply<true, false>)
                             : (two_panels ? multiply<false, true> : multiply<false, false>);
  const TileConfig config = pairs_config(step, static_cast<int>(depth / 4), static_cast<int>(depth));
  const TileScope scope(config);
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * panel_bytes;
  const int8_t* x = static_cast<const int8_t*>(a.x) + (s.row + first) * a.ldx;
  for (int64_t g = 0; g < groups; ++g, record += bytes, x += inputs) {
    for (int c = 0; c < (two_panels ? 2 : 1); ++c) unpack(record + c * panel_bytes, inputs, w->codes[c]);
    for (int64_t r = 0; r < rows; r += step) {
      run(x + r * a.ldx, a.ldx, inputs, w);
      for (int c = 0; c < (two_panels ? 2 : 1); ++c)
        fold(a, record + c * panel_bytes, s.row + first + r, step, g, w->sums[c], w->acc[c] + first + r);
    }
  }
}

inline void span(const LinearArgs& a, const Span& s, int64_t panel_bytes, Work* w) {
  const int64_t whole = s.rows / kSpan * kSpan, rest = s.rows - whole;
  for (int64_t p = s.panel; p < s.panel + s.panels; p += 2) {
    const bool two_panels = p + 1 < s.panel + s.panels;
    std::memset(w->acc, 0, sizeof w->acc);
    if (whole) rows_of(a, s, 0, whole, kSpan, p, two_panels, panel_bytes, w);
    if (rest) rows_of(a, s, whole, rest, rest, p, two_panels, panel_bytes, w);
    for (int c = 0; c < (two_panels ? 2 : 1); ++c)
      for (int64_t r = 0; r < s.rows; ++r) finish<V>(a, s.row + r, (p + c) * kPanel, w->acc[c][r]);
  }
}

}  // namespace

void linear_i4(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::i4, a.flags, a.k);
  run_tiles<kRows, 2>(a, step, lane, bytes, [&](const Span& s) { span(a, s, bytes, static_cast<Work*>(lane.scratch)); });
}

}  // namespace octavo::OCTAVO_ISA_NS
