// linear_{q6k,q5k,q3k,q2k,q5g32}: codes in bit planes, inputs int8 per (row, 256) or, for q5g32, per (row, 32).
//
// K-quants, per 256 inputs: isum = sum of sub_scale * (sum of q_a q), msum = sum of sub_min * (sum of q_a), exact in int32; then
// acc = fma(float(isum), s_a * d, acc) and, with minima, acc = fma(float(msum), -(s_a * dmin), acc). q5g32 has one scale (and minimum)
// per 32. A zero point is taken off in int32: isum less zero * sub_scale * (sum of q_a).
//
// A tile is R rows x C panels x up to 256 inputs; float sums wait in memory between such blocks, so that registers hold integers
// only. Few rows read the planes themselves. With many, C panels' codes of a block are unpacked into scratch once for up to
// kSpanRows rows, and every tile reads bytes.
//
// Without VNNI sums of products are int16 for kSteps dwords: two steps of 6-bit codes reach 2 * 2 * 63 * 127 = 32,004, four of
// 5-bit ones 4 * 2 * 31 * 127 = 31,496.
#pragma once
#include "linear/planes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Of tiles that read bytes, and that read planes: integers of two kinds and the codes fit the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = kVnni ? 6 : 4, kTilePanels = 2, kPlaneRows = 8;
#else
constexpr int kTileRows = kVnni ? 6 : 4, kTilePanels = 1, kPlaneRows = 4;
#endif
constexpr int kStreamRows = 8;  // up to which planes are read
constexpr int kSpanRows = 128;

template <class P>
constexpr int kSteps = P::kLow + P::kHigh > 5 ? 2 : 4;

// Where a tile's operands are, of its first row and panel; strides between rows are ldx, lds and C * 16 floats.
struct Operands {
  const uint8_t* codes;
  int64_t codes_stride;  // between panels
  const uint8_t* record;
  int64_t record_stride;
  const int8_t* x;
  int64_t ldx;
  const float* scales;
  const int32_t* sums;
  int64_t lds;
  const int32_t* side;  // 16 of a row: what a format needs of the sums of inputs
  const int32_t* mins;  // of the panels, in scratch: see `unpack_mins`
  float* acc;
};

template <int R, int N>
struct Ints {
  I v[R][N];

  __attribute__((always_inline)) void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) v[r][i] = V::ibroadcast(0);
  }

  // Row r starts at sums[16 * r] in every output.
  __attribute__((always_inline)) void start(const int32_t* sums) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) v[r][i] = V::ibroadcast(sums[16 * r]);
  }

  __attribute__((always_inline)) void add(const Ints& other) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) v[r][i] = V::iadd(v[r][i], widen_sum(other.v[r][i]));
  }

  // Adds the products of dwords first .. last of a chunk with the inputs at x.
  template <class Codes, int first, int last>
  __attribute__((always_inline)) void add_products(const uint8_t* chunk, int64_t stride, const int8_t* x, int64_t ldx) {
    each<first, last>([&](auto step) __attribute__((always_inline)) {
      I codes[N];
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) codes[i] = Codes::template code<step>(chunk + i / kParts * stride, i % kParts);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const I in = inputs_at(x + r * ldx + 4 * step);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) v[r][i] = mac(v[r][i], codes[i], in);
      }
    });
  }
};

// isum of one chunk (32 inputs), `sub` of its block.
template <class P, class Codes, int R, int N>
__attribute__((always_inline)) inline void add_chunk(const Operands& o, int sub, Ints<R, N>* isum) {
  const uint8_t* chunk = o.codes + sub * Codes::kChunk;
  const int8_t* x = o.x + 32 * sub;
  if constexpr (Codes::kIsScaled) {
    isum->template add_products<Codes, 0, 8>(chunk, o.codes_stride, x, o.ldx);
  } else {
    constexpr int kRun = kVnni ? P::kGroup / 4 : kSteps<P>;  // dwords of one sum
    I scale[N];
    each<0, 8 / kRun>([&](auto run) __attribute__((always_inline)) {
      constexpr int first = run * kRun;
      if constexpr (first * 4 % P::kGroup == 0)
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i)
          scale[i] = scale_factor<P>(o.record + i / kParts * o.record_stride, (32 * sub + 4 * first) / P::kGroup, i % kParts);
      Ints<R, N> sum;
      if constexpr (kStarts<P>)
        sum.start(o.side + (32 * sub + 4 * first) / P::kGroup);
      else
        sum.clear();
      sum.template add_products<Codes, first, first + kRun>(chunk, o.codes_stride, x, o.ldx);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) isum->v[r][i] = mac_scaled(isum->v[r][i], sum.v[r][i], scale[i]);
    });
  }
}

// Sums over the sub-blocks of minimum (or sub-scale) times sum of inputs.
template <class P, int R, int N, bool is_stream>
__attribute__((always_inline)) inline void sum_mins(const Operands& o, Ints<R, N>* msum) {
  msum->clear();
#pragma GCC unroll 1
  for (int pair = 0; pair < 128 / P::kGroup; ++pair) {
    I mins[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      mins[i] = is_stream ? mins_of<P>(o.record, pair, i)
                          : load_bytes(o.mins + i / kParts * kPanelMins + 16 * pair + i % kParts * V::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const I sums = V::ibroadcast(o.side[16 * r + pair]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) msum->v[r][i] = mac16(msum->v[r][i], mins[i], sums);
    }
  }
}

// A block of 256 inputs of a K-quant.
template <class P, class Codes, int R, int C, bool is_stream>
inline void k_tile(const Operands& at_first) {
  const Operands o = at_first;  // a copy, that stores cannot change
  constexpr int N = C * kParts;
  constexpr bool is_negative = kStarts<P> && Codes::kIsScaled;
  Ints<R, N> isum, msum;
  if constexpr (is_negative)
    isum.start(o.side);
  else
    isum.clear();
#pragma GCC unroll 1
  for (int sub = 0; sub < 8; ++sub) {
    if constexpr (is_stream) prefetch_ahead<P::kBytes / 8>(o.record + P::kBytes / 8 * sub);
    add_chunk<P, Codes>(o, sub, &isum);
  }
  if constexpr (!kStarts<P>) sum_mins<P, R, N, is_stream>(o, &msum);
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    const uint8_t* halves = o.record + i / kParts * o.record_stride + P::kHalvesAt;
    const F d = half_part(halves, i % kParts);
    const F low = P::kMin ? half_part(halves + 32, i % kParts) : V::zero();
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F s = V::broadcast(o.scales[r * o.lds]);
      I sum = is_negative ? V::isub(V::ibroadcast(0), isum.v[r][i]) : isum.v[r][i];
      if constexpr (P::kZero != 0 && !kStarts<P>) sum = V::isub(sum, V::template shl<P::kZero == 32 ? 5 : 2>(msum.v[r][i]));
      float* at = o.acc + (r * C + i / kParts) * 16 + i % kParts * V::kLanes;
      F acc = V::fma(V::cvt_f32(sum), V::mul(s, d), V::load(at));
      if constexpr (P::kMin) acc = V::fma(V::cvt_f32(msum.v[r][i]), V::neg(V::mul(s, low)), acc);
      V::store(at, acc);
    }
  }
}

// Up to 8 groups of 32 inputs of q5g32.
template <class P, class Codes, int R, int C, bool is_stream>
inline void g_tile(const Operands& at_first, int64_t groups) {
  const Operands o = at_first;
  constexpr int N = C * kParts, kRun = kSteps<P>;
  constexpr int64_t kStride = Codes::kChunk == P::kChunk ? P::kBytes : Codes::kChunk;
  F acc[R][N];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[r][i] = V::load(o.acc + (r * C + i / kParts) * 16 + i % kParts * V::kLanes);
#pragma GCC unroll 1
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* record = o.record + g * P::kBytes;
    if constexpr (is_stream) prefetch_ahead<P::kBytes>(record);
    Ints<R, N> isum;
    if constexpr (P::kZero != 0)
      isum.start(o.side + g);
    else
      isum.clear();
    const uint8_t* chunk = o.codes + g * kStride;
    const int8_t* x = o.x + 32 * g;
    if constexpr (kVnni)
      isum.template add_products<Codes, 0, 8>(chunk, o.codes_stride, x, o.ldx);
    else
      each<0, 8 / kRun>([&](auto run) __attribute__((always_inline)) {
        Ints<R, N> sum;
        sum.clear();
        sum.template add_products<Codes, run * kRun, run * kRun + kRun>(chunk, o.codes_stride, x, o.ldx);
        isum.add(sum);
      });
    F d[N], m[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const uint8_t* halves = record + i / kParts * o.record_stride + P::kHalvesAt;
      d[i] = half_part(halves, i % kParts);
      m[i] = P::kMin ? half_part(halves + 32, i % kParts) : V::zero();
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F s = V::broadcast(o.scales[r * o.lds + g]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) acc[r][i] = V::fma(V::cvt_f32(isum.v[r][i]), V::mul(s, d[i]), acc[r][i]);
      if constexpr (P::kMin) {
        const F asum = V::from_bits(V::ibroadcast(o.side[16 * r + g]));
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) acc[r][i] = V::fma(asum, V::mul(s, m[i]), acc[r][i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) V::store(o.acc + (r * C + i / kParts) * 16 + i % kParts * V::kLanes, acc[r][i]);
}

// What the loops below know of a format: its records per block of up to 256 inputs, entries of scales and sums per block.
template <class P, PackedKind kind>
struct KFormat {
  static constexpr PackedKind kKind = kind;
  static constexpr int32_t kFlags = 0;
  static constexpr int64_t kRecords = 1, kScales = 1, kSums = 16;
  using InRegisters = Planes<P>;
  using InScratch = Bytes<kVnni && P::kFolds>;

  template <class Codes, int R, int C, bool is_stream>
  static void tile(const Operands& o, int64_t) {
    k_tile<P, Codes, R, C, is_stream>(o);
  }
  static void unpack(const uint8_t* record, int64_t, uint8_t* bytes, int32_t* mins) {
    if constexpr (InScratch::kIsScaled)
      unpack_scaled<P>(record, bytes);
    else
      for (int sub = 0; sub < 8; ++sub) unpack_chunk<P>(record + sub * P::kChunk, bytes + sub * kByteChunk);
    unpack_mins<P>(record, mins);
  }
  template <class Codes>
  static void side(const int32_t* sums, int64_t, int32_t* side) {
    prepare_side<P, Codes>(sums, side);
  }
};

template <bool has_min>
struct Q5g32 {
  using P = PlanesQ5g32<has_min>;
  static constexpr PackedKind kKind = PackedKind::q5g32;
  static constexpr int32_t kFlags = has_min ? kHasMin : 0;
  static constexpr int64_t kRecords = 8, kScales = 8, kSums = 8;
  using InRegisters = Planes<P>;
  using InScratch = Bytes<false>;

  template <class Codes, int R, int C, bool is_stream>
  static void tile(const Operands& o, int64_t records) {
    g_tile<P, Codes, R, C, is_stream>(o, records);
  }
  static void unpack(const uint8_t* record, int64_t records, uint8_t* bytes, int32_t*) {
    for (int64_t g = 0; g < records; ++g) unpack_chunk<P>(record + g * P::kBytes, bytes + g * kByteChunk);
  }
  template <class Codes>
  static void side(const int32_t* sums, int64_t records, int32_t* side) {
    for (int64_t g = 0; g < records; ++g) {
      const float asum = static_cast<float>(sums[g]);
      side[g] = -P::kZero * sums[g];
      if (has_min) std::memcpy(side + g, &asum, 4);
    }
  }
};

struct Work {
  alignas(64) uint8_t codes[kTilePanels][8 * kByteChunk];
  alignas(64) int32_t mins[kTilePanels][kPanelMins];
  alignas(64) int32_t side[kSpanRows][16];
  alignas(64) float acc[kSpanRows * kTilePanels * 16];
};
static_assert(sizeof(Work) <= kScratchBytes, "scratch is per thread");

template <class Format, class Codes, int C, bool is_stream, int R>
inline void rows_tile(const Operands& o, int64_t rows, int64_t records) {
  if constexpr (R > 1) {
    if (rows < R) return rows_tile<Format, Codes, C, is_stream, R - 1>(o, rows, records);
  }
  Format::template tile<Codes, R, C, is_stream>(o, records);
}

// Tile t's share of asking for the block that is unpacked next, so that memory is not idle while products are computed.
template <int C, int64_t bytes>
inline void ask_ahead(const uint8_t* next, int64_t stride, int64_t t, int64_t tiles) {
  constexpr int64_t kLines = (bytes + 63) / 64;
  for (int c = 0; c < C; ++c)
    for (int64_t i = kLines * t / tiles; i < kLines * (t + 1) / tiles; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(next + c * stride + 64 * i), _MM_HINT_T0);
}

// All inputs of rows s.row .. and C panels.
template <class Format, int C, bool is_stream>
inline void span_panels(const LinearArgs& a, const Span& s, int64_t panel, Work* w) {
  using Codes = std::conditional_t<is_stream, typename Format::InRegisters, typename Format::InScratch>;
  constexpr int64_t kBytes = record_bytes(Format::kKind, Format::kFlags);
  constexpr int kRows = is_stream ? kPlaneRows : kTileRows;
  const int64_t records = round_up(a.k, record_inputs(Format::kKind)) / record_inputs(Format::kKind);
  const int64_t stride = records * kBytes, tiles = (s.rows + kRows - 1) / kRows;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * stride;
  std::memset(w->acc, 0, static_cast<size_t>(s.rows * C * 16) * sizeof(float));
  for (int64_t i = 0; i < records; i += Format::kRecords, record += Format::kRecords * kBytes) {
    const int64_t count = records - i < Format::kRecords ? records - i : Format::kRecords, block = i / Format::kRecords;
    if constexpr (!is_stream)
      for (int c = 0; c < C; ++c) Format::unpack(record + c * stride, count, w->codes[c], w->mins[c]);
    const int32_t* sums = a.sums + Format::kSums / Format::kScales * s.row * a.lds + Format::kSums * block;
    for (int64_t r = 0; r < s.rows; ++r)
      Format::template side<Codes>(sums + Format::kSums / Format::kScales * r * a.lds, count, w->side[r]);
    for (int64_t t = 0; t < tiles; ++t) {
      if constexpr (!is_stream) ask_ahead<C, Format::kRecords * kBytes>(record + Format::kRecords * kBytes, stride, t, tiles);
      const int64_t first = s.rows * t / tiles, row = s.row + first;  // tiles of nearly equal height
      const Operands o{is_stream ? record : w->codes[0],
                       is_stream ? stride : 8 * kByteChunk,
                       record,
                       stride,
                       static_cast<const int8_t*>(a.x) + row * a.ldx + 256 * block,
                       a.ldx,
                       a.scales + row * a.lds + Format::kScales * block,
                       sums + Format::kSums / Format::kScales * first * a.lds,
                       a.lds,
                       w->side[first],
                       w->mins[0],
                       w->acc + first * C * 16};
      rows_tile<Format, Codes, C, is_stream, kRows>(o, s.rows * (t + 1) / tiles - first, count);
    }
  }
  for (int c = 0; c < C; ++c)
    for (int64_t r = 0; r < s.rows; ++r) finish<V>(a, s.row + r, (panel + c) * kPanel, w->acc + (r * C + c) * 16);
}

template <class Format>
inline void run_planes(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(Format::kKind, Format::kFlags, a.k);
  auto* work = static_cast<Work*>(lane.scratch);
  if (num_rows(a.rows, step) <= kStreamRows)
    return run_tiles<kStreamRows>(a, step, lane, bytes, [&](const Span& s) {
      for (int64_t p = s.panel; p < s.panel + s.panels; ++p) span_panels<Format, 1, true>(a, s, p, work);
    });
  run_tiles<kSpanRows, kTilePanels>(a, step, lane, bytes, [&](const Span& s) {
    int64_t p = s.panel;
    for (; p + kTilePanels <= s.panel + s.panels; p += kTilePanels) span_panels<Format, kTilePanels, false>(a, s, p, work);
    if constexpr (kTilePanels > 1)
      for (; p < s.panel + s.panels; ++p) span_panels<Format, 1, false>(a, s, p, work);
  });
}

}  // namespace

void linear_q6k(const void* raw, const Step& step, const Lane& lane) {
  run_planes<KFormat<PlanesQ6k, PackedKind::q6k>>(raw, step, lane);
}
void linear_q5k(const void* raw, const Step& step, const Lane& lane) {
  run_planes<KFormat<PlanesQ5k, PackedKind::q5k>>(raw, step, lane);
}
void linear_q3k(const void* raw, const Step& step, const Lane& lane) {
  run_planes<KFormat<PlanesQ3k, PackedKind::q3k>>(raw, step, lane);
}
void linear_q2k(const void* raw, const Step& step, const Lane& lane) {
  run_planes<KFormat<PlanesQ2k, PackedKind::q2k>>(raw, step, lane);
}
void linear_q5g32(const void* raw, const Step& step, const Lane& lane) {
  if (static_cast<const LinearArgs*>(raw)->flags & kHasMin) return run_planes<Q5g32<true>>(raw, step, lane);
  run_planes<Q5g32<false>>(raw, step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
