// linear_q4g32, linear_q8g32 and linear_q4k at amx.
#include "linear/amx_groups.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <PackedKind kind, int32_t flags>
struct Halves32 {
  static constexpr int64_t kGroup = 32;
  static constexpr bool kUsesMin = (flags & kHasMin) != 0;
  static constexpr int64_t kCodes = kind == PackedKind::q4g32 ? 256 : 512;

  explicit Halves32(int32_t) {}
  static constexpr int64_t bytes() { return record_bytes(kind, flags); }
  static void unpack(const uint8_t* record, int8_t* codes, float* halves) {
    if constexpr (kind == PackedKind::q4g32) {
      unpack_nibbles(record, bytes_of(flags & kZero8 ? 8 : 0), codes);
    } else {
      for (int c = 0; c < 8; ++c) _mm512_store_si512(codes + 64 * c, load_bytes(record + 64 * c));
    }
    V::store(halves, half_part(record + kCodes, 0));
    if constexpr (kUsesMin) V::store(halves + 16, half_part(record + kCodes + 32, 0));
  }
};

constexpr int kTiles = 4;            // row tiles of a span
constexpr int kRows = 16 * kTiles;

struct Work {
  alignas(64) int32_t sums[kTiles][16][16];  // C of one group
  alignas(64) float acc[kRows][16];
  alignas(64) int32_t isum[kRows][16];  // K-quants: of one block of 256
  alignas(64) uint8_t codes[8][64];     // B, unpacked
};
static_assert(sizeof(Work) <= kScratchBytes, "scratch is per thread");

// 256 bytes of nibbles -> 8 rows of a B tile: low nibbles are inputs 0..15, high nibbles 16..31.
inline void unpack_old(const uint8_t* packed, Work* w) {
  const I mask = bytes_of(15);
  for (int c = 0; c < 4; ++c) {
    const I codes = load_bytes(packed + 64 * c);
    _mm512_store_si512(w->codes[c], and_bits(codes, mask));
    _mm512_store_si512(w->codes[4 + c], high_nibbles(codes, mask));
  }
}

// One row tile: C = A * B, stored. Tile numbers must be literals: the compilers' intrinsics paste them into register names.
#define OCTAVO_PRODUCT(c, a, row_tile, from)             \
  do {                                                   \
    _tile_zero(c);                                       \
    _tile_loadd(a, (from), ldx);                         \
    if constexpr (is_signed)                             \
      _tile_dpbssd(c, a, 6);                             \
    else                                                 \
      _tile_dpbsud(c, a, 6);                             \
    _tile_stored(c, &w->sums[row_tile][0][0], 64);       \
  } while (0)

// C of every row of the span for one group. Tiles: 0-3 C, 4 A of full tiles, 5 A of the last rows, 6 B; the last rows, and the
// fourth tile, use C tile 3.
template <bool is_signed>
inline void products(const void* codes, const int8_t* x, int64_t ldx, int rows, Work* w) {
  before_tiles();
  _tile_loadd(6, codes, 64);
  const int full = rows / 16;
  if (full > 0) OCTAVO_PRODUCT(0, 4, 0, x);
  if (full > 1) OCTAVO_PRODUCT(1, 4, 1, x + 16 * ldx);
  if (full > 2) OCTAVO_PRODUCT(2, 4, 2, x + 32 * ldx);
  if (full > 3) OCTAVO_PRODUCT(3, 5, 3, x + 48 * ldx);
  if (rows % 16) OCTAVO_PRODUCT(3, 5, full, x + 16 * full * ldx);
  before_tiles();
}
#undef OCTAVO_PRODUCT

inline TileConfig config_of(int rows) {
  const int last = rows % 16 ? rows % 16 : 16;
  TileConfig config;
  for (int c = 0; c < 3; ++c) config.set(c, 16, 64);
  config.set(3, last, 64);
  config.set(4, 16, 32);
  config.set(5, last, 32);
  config.set(6, 8, 64);
  return config;
}

inline void q4k_panel(const LinearArgs& a, const Span& s, int64_t panel, Work* w) {
  constexpr int64_t kBytes = record_bytes(PackedKind::q4k, 0);
  const int64_t blocks = a.k / 256;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * blocks * kBytes;
  const int8_t* x = static_cast<const int8_t*>(a.x) + s.row * a.ldx;
  const int rows = static_cast<int>(s.rows);
  for (int r = 0; r < rows; ++r) V::store(w->acc[r], V::zero());
  for (int64_t b = 0; b < blocks; ++b, record += kBytes) {
    for (int r = 0; r < rows; ++r) _mm512_store_si512(w->isum[r], V::ibroadcast(0));
    for (int sub = 0; sub < 8; ++sub) {
      unpack_old(record + 256 * sub, w);
      products<false>(w->codes, x + 256 * b + 32 * sub, a.ldx, rows, w);
      const I scale = widen_u8(record + 2048 + 16 * sub);
      for (int r = 0; r < rows; ++r)
        _mm512_store_si512(w->isum[r], V::iadd(load_bytes(w->isum[r]), mul32(load_bytes(&w->sums[0][r][0]), scale)));
    }
    I mins[8];
    for (int sub = 0; sub < 8; ++sub) mins[sub] = widen_u8(record + 2176 + 16 * sub);
    const F d = half_part(record + 2304, 0), low = half_part(record + 2336, 0);
    for (int r = 0; r < rows; ++r) {
      const int64_t entry = (s.row + r) * a.lds + b;
      const int32_t* sums = a.sums + 16 * entry;
      const F scale = V::broadcast(a.scales[entry]);
      I msum = V::ibroadcast(0);
      for (int sub = 0; sub < 8; ++sub) msum = V::iadd(msum, mul32(mins[sub], V::ibroadcast(sums[2 * sub] + sums[2 * sub + 1])));
      F acc = V::fma(V::cvt_f32(load_bytes(w->isum[r])), V::mul(scale, d), V::load(w->acc[r]));
      acc = V::fma(V::cvt_f32(msum), V::neg(V::mul(scale, low)), acc);
      V::store(w->acc[r], acc);
    }
  }
  for (int r = 0; r < rows; ++r) finish<V>(a, s.row + r, panel * kPanel, w->acc[r]);
}

using PanelBody = void (*)(const LinearArgs&, const Span&, int64_t panel, Work*);

inline void run_body(const LinearArgs& a, const Step& step, const Lane& lane, int64_t bytes, PanelBody body) {
  run_tiles<kRows>(a, step, lane, bytes, [&](const Span& s) {
    const TileConfig config = config_of(static_cast<int>(s.rows));
    const TileScope scope(config);
    for (int64_t p = s.panel; p < s.panel + s.panels; ++p) body(a, s, p, static_cast<Work*>(lane.scratch));
  });
}

}  // namespace

void linear_q4g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_groups<Halves32<PackedKind::q4g32, kHasMin>>(a, step, lane);
  if (a.flags & kZero8) return run_groups<Halves32<PackedKind::q4g32, kZero8>>(a, step, lane);
  run_groups<Halves32<PackedKind::q4g32, 0>>(a, step, lane);
}

void linear_q8g32(const void* raw, const Step& step, const Lane& lane) {
  run_groups<Halves32<PackedKind::q8g32, 0>>(*static_cast<const LinearArgs*>(raw), step, lane);
}

void linear_q4k(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  run_body(a, step, lane, panel_bytes(PackedKind::q4k, 0, a.k), q4k_panel);
}

}  // namespace octavo::OCTAVO_ISA_NS
