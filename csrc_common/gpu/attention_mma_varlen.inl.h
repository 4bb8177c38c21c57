// varlen_attention_d<N>__mmafast on matrix units, of heads of up to N dimensions: a block takes 16 or 32 rows (query heads of a kv
// head, of neighbouring tokens of a packed sequence), its four waves the tiles of 32 keys in turn, straight from their rows.
//
// Inputs are float32, and three bfloat16 hold all 24 bits of one, whatever its size: float16, two of which hold 22, would need
// scales, for it ends at 65504 and below at 2^-24. Of the nine products of parts six are made; the others are below 2^-21.
#pragma once

#include "gpu/attention_mma_packed.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

struct alignas(16) Floats8 {
  float v[8];
};

// Parts are cut off, not rounded: the rest is exact.
struct PartUnits {
  using Operand = OperandBF16;
  using ValueUnit = Floats8;
  static constexpr int kStepsOfLoad = 1, kParts = 3;
  static constexpr bool kBlanks = false;  // what nobody sees is not read
  struct RawValues {
    ValueUnit unit[kUnits];
  };
  static OCTAVO_GPU_FN int step_of(int dim) { return dim / 32; }
  static OCTAVO_GPU_FN int q_of(int dim) { return dim % 32 / kUnit; }
  static OCTAVO_GPU_FN float rest(float x) {
    return x - float_of_word(static_cast<int32_t>(static_cast<uint32_t>(word_of_float(x)) & 0xFFFF0000u));
  }
  static OCTAVO_GPU_FN int32_t pack(float low, float high, int part) {
    for (int i = 0; i < part; ++i) low = rest(low), high = rest(high);
    return pack_small(low, high);
  }
  // The next part; `raw` keeps what is left.
  static OCTAVO_GPU_FN Operand key(Floats8 (&raw)[kUnits], int) {
    Operand to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to.w[u][i] = pack_small(raw[u].v[2 * i], raw[u].v[2 * i + 1]);
        raw[u].v[2 * i] = rest(raw[u].v[2 * i]);
        raw[u].v[2 * i + 1] = rest(raw[u].v[2 * i + 1]);
      }
    return to;
  }
  static OCTAVO_GPU_FN Operand value(RawValues& raw) { return key(raw.unit, 0); }
  static OCTAVO_GPU_FN void blank(RawValues&, int32_t, int32_t, int32_t) {}
};
template <>
constexpr int kKeyPartsOf<PartUnits> = 3;

// Keys and values straight from their rows.
struct RowTiles : PackedTiles {
  using Units = PartUnits;
  using Rows = PackedRows;
  using KeyUnit = Floats8;
  static constexpr bool kHasScales = false;
  static constexpr int kElementBytes = 4;
  const float *k, *v;
  uint32_t ldk, ldv;
  int32_t head_dim;
  OCTAVO_GPU_FN RowTiles(const VarlenAttentionArgs& a, int64_t first, int64_t kv_head)
      : k(a.k + first * a.ldk + kv_head * a.head_dim), v(a.v + first * a.ldv + kv_head * a.head_dim), ldk(static_cast<uint32_t>(a.ldk)),
        ldv(static_cast<uint32_t>(a.ldv)), head_dim(static_cast<int32_t>(a.head_dim)) {}

  template <int kSteps, int kHalves>
  struct Keys {
    const float* k;
    int32_t head_dim;
    uint32_t at[kHalves][kUnits];
    OCTAVO_GPU_FN void load(Floats8& to, int half, int u, int load) const {
      const bool is_there = 32 * load + 32 <= kFewestTilesOf<kSteps> * 16 || kUnit * opaque(unit_q(u)) < head_dim - 32 * load;
      const float* from = k + at[half][u] + (is_there ? 32 * load : 0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Floats4 part = reinterpret_cast<const Floats4*>(from)[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) to.v[4 * i + j] = part.v[j];
      }
    }
  };
  template <int kSteps, int kHalves>
  OCTAVO_GPU_FN Keys<kSteps, kHalves> keys(int first_half) const {
    Keys<kSteps, kHalves> keys;
    keys.k = k;
    keys.head_dim = head_dim;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        keys.at[half][u] = nearest(begin + token_of_row(first_half + half, opaque(unit_row(u))), from, to) * ldk +
                           kUnit * static_cast<uint32_t>(unit_q(u));
    return keys;
  }

  struct Values {
    const float* v;
    uint32_t ldv;
    int32_t from, to, begin;
    OCTAVO_GPU_FN void load(Floats8 (&value)[kUnits], int tile, bool is_there) const {
      const int32_t at = kUnits > 1 ? opaque(begin) : begin;  // more addresses than registers
      const auto dim = static_cast<uint32_t>(opaque_uniform(is_there ? 16 * tile : 0));
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          value[u].v[j] = v[nearest(at + kUnit * opaque(unit_q(u)) + j, from, to) * ldv + dim + static_cast<uint32_t>(opaque(unit_row(u)))];
    }
  };
  OCTAVO_GPU_FN Values values() const { return {v, ldv, from, to, begin}; }
};

// Tiles of 16 rows of a block, and words of shared memory that their queries take; none where every wave has them in registers.
template <int kSteps>
constexpr int kPackedTiles = kUnits == 1 && kSteps <= 2 ? 2 : 1;
template <int kSteps>
constexpr bool kPackedInRegisters = kUnits == 1 && kSteps <= 4;
template <int kSteps>
constexpr int kPackedWords = kPackedInRegisters<kSteps> ? 4 : kPackedTiles<kSteps> * PartUnits::kParts * kSteps * kStagedStep;

template <int kSteps>
OCTAVO_GPU_FN void varlen_attention_mma(const Step& step, const VarlenAttentionArgs& a, const FlashShared& shared) {
  constexpr int kTiles = kPackedTiles<kSteps>, kRows = kTiles * kRowsOfTile;
  if (!has_packed_work<kRows>(step, a)) return;
  const PackedWork work = packed_work_of<kRows>(step, a);
  const PackedRows& rows = work.rows;
  const int32_t first_row = work.first_row, count = work.count;
  if (count <= 0) return;
  constexpr bool kIsShared = !kPackedInRegisters<kSteps>;
  if constexpr (kIsShared) {
    static_assert(kTiles == 1);
    stage_queries<PartUnits, kSteps>(shared.queries, rows, first_row, thread(), kFlashThreads);
    sync();
  }
  Flash<RowTiles, kSteps, kTiles, kIsShared> flash(rows, RowTiles(a, rows.token, work.kv_head), first_row, shared.queries, nullptr);
  const int32_t from = rows.low(rows.position(first_row)), to = rows.high(rows.position(first_row + count - 1));
  flash.take_all(from / kKeys + uniform(wave()), to / kKeys, kFlashWaves, count);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    join_waves(
        flash, t, rows.head_dim(), count - 16 * t, shared, [](int) {},
        [&](int row, int dim, Floats4& value) {
#pragma unroll
          for (int i = 0; i < 4; ++i) value.v[i] = value.v[i] / shared.sum[row];
          store_four(rows.result(first_row + 16 * t + row) + dim, value);
        });
  }
}

}  // namespace octavo::gpu

#define OCTAVO_VARLEN_MMA(dims)                                                                                                   \
  OCTAVO_KERNEL(varlen_attention_d##dims, mmafast, VarlenAttention, octavo::gpu::kFlashThreads,                                    \
                (octavo::gpu::kPackedTiles<dims / 32> * octavo::gpu::kRowsOfTile), 0, OCTAVO_TWO_WAVES) {                          \
    OCTAVO_FLASH_SHARED(shared, (octavo::gpu::kPackedWords<dims / 32>), 1);                                                        \
    octavo::gpu::varlen_attention_mma<dims / 32>(*step_, a, shared);                                                               \
  }

// A unit of code for a chip has one size of heads.
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 64
OCTAVO_VARLEN_MMA(64)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 128
OCTAVO_VARLEN_MMA(128)
#endif
// Sums of a large head and three operands of weights leave RDNA 3, where a lane holds whole rows of operands, no registers, and ptxas
// does not do with 255.
#if !defined(__GFX11__) && !defined(__CUDACC__)
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 192
OCTAVO_VARLEN_MMA(192)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 256
OCTAVO_VARLEN_MMA(256)
#endif
#endif

#endif
