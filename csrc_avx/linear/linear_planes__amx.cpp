// linear_{q6k,q5k,q3k,q2k,q5g32} at amx: TDPBSSD on codes taken out of their planes, exact int32 sums.
//
// K-quants have a sub-scale every 16 or 32 inputs, which would leave a tile three quarters or half empty and C to be scaled after
// each product. Instead codes are multiplied with their sub-scales when they are unpacked. Of Q2_K and Q3_K a product fits a byte;
// of Q5_K and Q6_K it is 128 * high + low, two int8: two products per code, each over 256 inputs at the full depth of a tile,
// and C is folded into float32 once per 256. Q5_0 and Q5_1 have a float scale every 32 inputs (amx_groups.inl.h).
//
// Two row tiles meet two columns: two panels, or the high and low bytes of one. Codes are unpacked once for up to 128 rows.
#include "linear/amx_groups.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kRows = 128;  // of a span
constexpr int kSpan = 32;   // two row tiles

struct Work {
  alignas(64) uint8_t codes[2][8 * kByteChunk];  // B of two columns: inputs in fours, 16 outputs
  alignas(64) int32_t sums[2][kSpan][16];        // C
  alignas(64) int32_t mins[2][kPanelMins];
  alignas(64) int32_t side[kRows][16];
  alignas(64) float acc[2][kRows][16];
};
static_assert(sizeof(Work) <= kScratchBytes, "scratch is per thread");

// Sums over `inputs` of up to 32 rows of x, two columns. Tiles: 0-3 C[row tile][column], 4-5 A, 6-7 B, of min(inputs, 64) inputs.
template <bool two_row_tiles, bool two_columns>
inline void multiply(const int8_t* x, int64_t ldx, int64_t inputs, Work* w) {
  before_tiles();
  _tile_zero(0);
  if (two_columns) _tile_zero(1);
  if (two_row_tiles) _tile_zero(2);
  if (two_row_tiles && two_columns) _tile_zero(3);
  for (int64_t i = 0; i < inputs; i += 64) {
    _tile_loadd(6, w->codes[0] + 16 * i, 64);
    _tile_loadd(4, x + i, ldx);
    _tile_dpbssd(0, 4, 6);
    if (two_columns) {
      _tile_loadd(7, w->codes[1] + 16 * i, 64);
      _tile_dpbssd(1, 4, 7);
    }
    if (two_row_tiles) {
      _tile_loadd(5, x + i + 16 * ldx, ldx);
      _tile_dpbssd(2, 5, 6);
      if (two_columns) _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_stored(0, w->sums[0][0], 64);
  if (two_columns) _tile_stored(1, w->sums[1][0], 64);
  if (two_row_tiles) _tile_stored(2, w->sums[0][16], 64);
  if (two_row_tiles && two_columns) _tile_stored(3, w->sums[1][16], 64);
  before_tiles();
}

// A block of sub_scale * (code - zero) = 128 * high + low, low in [-64, 63].
template <class P>
inline void unpack_products(const uint8_t* record, Work* w) {
  const I low_bytes = words_of(0xFF), seven = words_of(127), half = words_of(64);
  for (int sub = 0; sub < 8; ++sub)
    each<0, 8>([&](auto v) {
      const I one = scale_of<P>(record, (32 * sub + 4 * v) / P::kGroup, 0);
      const I lanes = V::ior(and_bits(one, V::ibroadcast(0xFFFF)), V::template shl<16>(one));
      const I code = add8(Planes<P>::template code<v>(record + sub * P::kChunk, 0), bytes_of(static_cast<uint8_t>(-P::kZero)));
      const I even = _mm512_add_epi16(mul16(_mm512_srai_epi16(shift_bits<-8>(code), 8), lanes), half);
      const I odd = _mm512_add_epi16(mul16(_mm512_srai_epi16(code, 8), lanes), half);
      const int64_t at = sub * kByteChunk + 64 * v;
      store_bytes(w->codes[0] + at, and_or(_mm512_srai_epi16(even, 7), low_bytes, shift_bits<-8>(_mm512_srai_epi16(odd, 7))));
      store_bytes(w->codes[1] + at,
                  add8(and_or(even, seven, shift_bits<-8>(and_bits(odd, seven))), bytes_of(static_cast<uint8_t>(-64))));
    });
}

// A block of one or two panels' codes with their sub-scales, and what their minima need.
template <class P>
inline void unpack_block(const uint8_t* record, int64_t stride, int columns, Work* w) {
  if constexpr (!P::kFolds) {
    unpack_products<P>(record, w);
    if (P::kMin) unpack_mins<P>(record, w->mins[0]);
    return;
  }
  for (int c = 0; c < columns; ++c) {
    if constexpr (P::kFolds) unpack_scaled<P>(record + c * stride, w->codes[c]);
    if (P::kMin) unpack_mins<P>(record + c * stride, w->mins[c]);
    if (P::kZero != 0)  // 128 - product -> -product
      for (int i = 0; i < 64; ++i) store_bytes(w->codes[c] + 64 * i, xor_bits(load_bytes(w->codes[c] + 64 * i), bytes_of(128)));
  }
}

// One block's sums -> acc, for `rows` rows from `row` of the matrix, `first` of the span, and column c.
template <class P>
inline void fold_block(const LinearArgs& a, const uint8_t* record, int c, int64_t row, int64_t first, int64_t rows, int64_t b,
                       Work* w) {
  const F d = half_part(record + P::kHalvesAt, 0), low = P::kMin ? half_part(record + P::kHalvesAt + 32, 0) : V::zero();
  for (int64_t r = 0; r < rows; ++r) {
    const F s = V::broadcast(a.scales[(row + r) * a.lds + b]);
    I isum = load_bytes(w->sums[c][r]);
    if constexpr (!P::kFolds) isum = V::iadd(V::template shl<7>(isum), load_bytes(w->sums[1][r]));
    if constexpr (P::kFolds && P::kZero != 0) isum = V::isub(V::ibroadcast(0), isum);
    F acc = V::fma(V::cvt_f32(isum), V::mul(s, d), V::load(w->acc[c][first + r]));
    if constexpr (P::kMin) {
      I msum = V::ibroadcast(0);
      for (int pair = 0; pair < 128 / P::kGroup; ++pair)
        msum = mac16(msum, load_bytes(w->mins[c] + 16 * pair), V::ibroadcast(w->side[first + r][pair]));
      acc = V::fma(V::cvt_f32(msum), V::neg(V::mul(s, low)), acc);
    }
    V::store(w->acc[c][first + r], acc);
  }
}

template <class P, PackedKind kind>
struct KTiles {
  static constexpr PackedKind kKind = kind;
  static constexpr int32_t kFlags = 0;
  static constexpr int64_t kInputs = 256;
  static constexpr int kPanels = P::kFolds ? 2 : 1;  // that share a pass

  static void unpack(const uint8_t* record, int64_t stride, int panels, Work* w) { unpack_block<P>(record, stride, panels, w); }
  static void prepare(const LinearArgs& a, int64_t row, int64_t rows, int64_t b, Work* w) {
    if constexpr (P::kMin)
      for (int64_t r = 0; r < rows; ++r) prepare_side<P, Bytes<true>>(a.sums + 16 * ((row + r) * a.lds + b), w->side[r]);
  }
  static void fold(const LinearArgs& a, const uint8_t* record, int c, int64_t row, int64_t first, int64_t rows, int64_t b, Work* w) {
    fold_block<P>(a, record, c, row, first, rows, b, w);
  }
};

template <bool has_min>
struct Q5Groups {
  using P = PlanesQ5g32<has_min>;
  static constexpr int64_t kGroup = 32;
  static constexpr bool kUsesMin = has_min;

  explicit Q5Groups(int32_t) {}
  static constexpr int64_t bytes() { return P::kBytes; }
  static void unpack(const uint8_t* record, int8_t* codes, float* halves) {
    each<0, 8>([&](auto v) {
      store_bytes(codes + 64 * v, _mm512_sub_epi8(Planes<P>::template code<v>(record, 0), bytes_of(P::kZero)));
    });
    V::store(halves, half_part(record + P::kHalvesAt, 0));
    if constexpr (has_min) V::store(halves + 16, half_part(record + P::kHalvesAt + 32, 0));
  }
};

// `rows` rows from s.row + first, in steps of `step` rows (32, or all of them if fewer), times one or two panels.
template <class Format>
inline void rows_of(const LinearArgs& a, const Span& s, int64_t first, int64_t rows, int64_t step, int64_t panel, int panels,
                    int64_t stride, Work* w) {
  constexpr int64_t kBytes = record_bytes(Format::kKind, Format::kFlags), kDepth = Format::kInputs < 64 ? Format::kInputs : 64;
  const bool two_columns = Format::kPanels == 1 || panels == 2;
  const auto run = step > 16 ? (two_columns ? multiply<true, true> : multiply<true, false>)
                             : (two_columns ? multiply<false, true> : multiply<false, false>);
  const TileConfig config = pairs_config(step, kDepth / 4, kDepth);
  const TileScope scope(config);
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * stride;
  const int8_t* x = static_cast<const int8_t*>(a.x) + (s.row + first) * a.ldx;
  const int64_t blocks = round_up(a.k, Format::kInputs) / Format::kInputs;
  for (int64_t b = 0; b < blocks; ++b, record += kBytes, x += Format::kInputs) {
    Format::unpack(record, stride, panels, w);
    Format::prepare(a, s.row, s.rows, b, w);
    for (int64_t r = 0; r < rows; r += step) {
      run(x + r * a.ldx, a.ldx, Format::kInputs, w);
      for (int c = 0; c < panels; ++c) Format::fold(a, record + c * stride, c, s.row + first + r, first + r, step, b, w);
    }
  }
}

template <class Format>
inline void run_tiled(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t stride = panel_bytes(Format::kKind, Format::kFlags, a.k);
  auto* w = static_cast<Work*>(lane.scratch);
  run_tiles<kRows, Format::kPanels>(a, step, lane, stride, [&](const Span& s) {
    const int64_t whole = s.rows / kSpan * kSpan, rest = s.rows - whole, end = s.panel + s.panels;
    for (int64_t p = s.panel; p < end; p += Format::kPanels) {
      const int panels = p + Format::kPanels <= end ? Format::kPanels : 1;
      std::memset(w->acc, 0, sizeof w->acc);
      if (whole) rows_of<Format>(a, s, 0, whole, kSpan, p, panels, stride, w);
      if (rest) rows_of<Format>(a, s, whole, rest, rest, p, panels, stride, w);
      for (int c = 0; c < panels; ++c)
        for (int64_t r = 0; r < s.rows; ++r) finish<V>(a, s.row + r, (p + c) * kPanel, w->acc[c][r]);
    }
  });
}

}  // namespace

void linear_q6k(const void* raw, const Step& step, const Lane& lane) {
  run_tiled<KTiles<PlanesQ6k, PackedKind::q6k>>(raw, step, lane);
}
void linear_q5k(const void* raw, const Step& step, const Lane& lane) {
  run_tiled<KTiles<PlanesQ5k, PackedKind::q5k>>(raw, step, lane);
}
void linear_q3k(const void* raw, const Step& step, const Lane& lane) {
  run_tiled<KTiles<PlanesQ3k, PackedKind::q3k>>(raw, step, lane);
}
void linear_q2k(const void* raw, const Step& step, const Lane& lane) {
  run_tiled<KTiles<PlanesQ2k, PackedKind::q2k>>(raw, step, lane);
}
void linear_q5g32(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  if (a.flags & kHasMin) return run_groups<Q5Groups<true>>(a, step, lane);
  run_groups<Q5Groups<false>>(a, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
