// linear_bf16 at amx: TDPBF16PS, whose order of operations is the contract's dot32 (docs/numerics.md, "Float products").
//
// A B tile is one packed record (32 inputs x 16 outputs), an A tile 16 rows x 32 inputs. Two row tiles meet two panels, so that
// each loaded tile is used twice; sums stay in the four C tiles for the whole length of a row. Rows: bf16, padded with zeros
// to a multiple of 32 by prepare_bf16.
#include "linear/panels.inl.h"
#include "linear/tiles.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kRows = 32;  // of a span: two tiles
constexpr int64_t kRecord = record_bytes(PackedKind::bf16, 0);

// Tiles: 0-3 C[row tile][panel], 4-5 A, 6-7 B.
template <bool two_row_tiles, bool two_panels>
inline void multiply(const uint16_t* x, int64_t ldx, const uint8_t* weight, int64_t panel_bytes, int64_t blocks, float* sums) {
  _tile_zero(0);
  if (two_panels) _tile_zero(1);
  if (two_row_tiles) _tile_zero(2);
  if (two_row_tiles && two_panels) _tile_zero(3);
  for (int64_t b = 0; b < blocks; ++b, x += 32, weight += kRecord) {
    _tile_loadd(6, weight, 64);
    _tile_loadd(4, x, 2 * ldx);
    _tile_dpbf16ps(0, 4, 6);
    if (two_panels) {
      _tile_loadd(7, weight + panel_bytes, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (two_row_tiles) {
      _tile_loadd(5, x + 16 * ldx, 2 * ldx);
      _tile_dpbf16ps(2, 5, 6);
      if (two_panels) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  if (two_panels) _tile_stored(1, sums + 512, 64);
  if (two_row_tiles) _tile_stored(2, sums + 256, 64);
  if (two_row_tiles && two_panels) _tile_stored(3, sums + 768, 64);
  before_tiles();
}

inline void span(const LinearArgs& a, const Span& s, int64_t panel_bytes) {
  const int first = s.rows < 16 ? static_cast<int>(s.rows) : 16, second = static_cast<int>(s.rows) - first;
  TileConfig config;
  for (int p = 0; p < 2; ++p) {
    config.set(p, first, 64);
    config.set(2 + p, second ? second : 16, 64);
    config.set(6 + p, 16, 64);
  }
  config.set(4, first, 64);
  config.set(5, second ? second : 16, 64);
  const TileScope scope(config);
  const uint16_t* x = static_cast<const uint16_t*>(a.x) + s.row * a.ldx;
  const int64_t blocks = round_up(a.k, 32) / 32;
  alignas(64) float sums[2][kRows][16];
  for (int64_t p = s.panel; p < s.panel + s.panels; p += 2) {
    const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + p * panel_bytes;
    const bool two_panels = p + 1 < s.panel + s.panels;
    const auto run = second ? (two_panels ? multiply<true, true> : multiply<true, false>)
                            : (two_panels ? multiply<false, true> : multiply<false, false>);
    run(x, a.ldx, weight, panel_bytes, blocks, &sums[0][0][0]);
    for (int c = 0; c < (two_panels ? 2 : 1); ++c)
      for (int64_t r = 0; r < s.rows; ++r) finish<V>(a, s.row + r, (p + c) * kPanel, sums[c][r]);
  }
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::bf16, 0, a.k);
  run_tiles<kRows>(a, step, lane, bytes, [&](const Span& s) { span(a, s, bytes); });
}

}  // namespace octavo::OCTAVO_ISA_NS
