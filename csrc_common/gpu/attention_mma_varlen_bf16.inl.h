// varlen_attention_bf16_d<N>__mmafast on matrix units, of heads of up to N dimensions: a wave takes 16 or 32 rows (query heads of a kv
// head, of neighbouring tokens of a packed sequence). The four waves of a block read keys and values of 32 positions once, round
// them to bfloat16 and share them in shared memory, as those of a prompt do (gpu/attention_mma_stage.inl.h).
#pragma once

#include "gpu/attention_mma_packed.h"
#include "gpu/attention_mma_stage.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

struct RoundedUnits : KVUnits<KVBF16> {
  static constexpr bool kBlanks = false;  // what nobody sees is not read
};
using RoundedTiles = StagedTiles<KVBF16, RoundedUnits, PackedRows>;

// Tiles of 16 rows of a wave; whether its queries lie in shared memory; whether keys and values are on their way in registers while
// waves work, where there are enough of them.
template <int kSteps>
constexpr int kRoundedTiles = kUnits == 1 && kSteps <= 4 ? 2 : 1;
template <int kSteps>
constexpr bool kRoundedShares = kUnits > 2 ? kSteps > 2 : kUnits == 2 && kSteps > (kQueryIsA ? 4 : 6);
template <int kSteps>
constexpr bool kRoundedAhead = kUnits == 1 || kSteps <= (kUnits == 2 && !kQueryIsA ? 4 : 2);
// Whether values take the place of keys in shared memory: NVIDIA's blocks have 48 KiB.
template <int kSteps>
constexpr bool kRoundedInOne = kQueryIsA && kSteps > 6;
template <int kSteps>
constexpr int kRoundedQueryWords = kRoundedShares<kSteps> ? kFlashWaves * kRoundedTiles<kSteps> * kSteps * kStagedStep : 4;

// Rows of keys and values of one kv head of a packed sequence. Addresses are computed where they are needed: registers.
struct RowSource : PackedTiles {
  const VarlenAttentionArgs& a;
  int32_t token, kv_head;
  OCTAVO_GPU_FN const float* row(const float* rows, int64_t stride) const {
    return rows + opaque_uniform(token) * stride + opaque_uniform(kv_head) * a.head_dim;
  }
};

// 32 positions on their way from rows of float32 to shared memory, as TileStage leaves them there.
template <int kSteps>
struct RowStage {
  static constexpr bool kIsAhead = kRoundedAhead<kSteps>;
  static constexpr bool kIsOne = kRoundedInOne<kSteps>;
  static constexpr int kDims = 32 * kSteps, kQuads = kDims / 4;
  static constexpr int kWords = 32 * kDims / 2, kValueWords = kIsOne ? 4 : kWords;
  static constexpr int kEach = 32 * kQuads / kFlashThreads, kTogether = kIsAhead ? kEach : kIsOne ? 1 : 2;  // runs of four floats
  static constexpr int kValueRun = kTogether == 1 ? 1 : 2;  // of them that go to one place of shared memory
  static_assert(kEach % kTogether == 0 && kTogether % kValueRun == 0);
  Floats4 held[kTogether];

  OCTAVO_GPU_FN void fetch(const RowSource& from, int first, bool is_keys) {
    const float* rows = is_keys ? from.row(from.a.k, from.a.ldk) : from.row(from.a.v, from.a.ldv);
    const auto stride = static_cast<uint32_t>(is_keys ? from.a.ldk : from.a.ldv), head_dim = static_cast<uint32_t>(from.a.head_dim);
    if (is_keys) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {  // four neighbouring dimensions of a key
        const int at = opaque(thread()) + (first + i) * kFlashThreads, row = at / kQuads;
        const auto dim = static_cast<uint32_t>(at % kQuads * 4);
        const uint32_t key = RowSource::nearest(from.begin + token_of_row(row / 16, row % 16), from.from, from.to);
        const Floats4 x = *reinterpret_cast<const Floats4*>(rows + key * stride + (dim < head_dim ? dim : 0));
#pragma unroll
        for (int j = 0; j < 4; ++j) held[i].v[j] = x.v[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTogether; i += kValueRun) {  // neighbouring positions of a dimension
        const int at = opaque(thread()) + (first + i) / kValueRun * kFlashThreads, run = at / kDims;
        const auto dim = static_cast<uint32_t>(at % kDims);
#pragma unroll
        for (int j = 0; j < 4 * kValueRun; ++j) {
          const uint32_t key = RowSource::nearest(from.begin + 4 * kValueRun * run + j, from.from, from.to);
          held[i + j / 4].v[j % 4] = rows[key * stride + (dim < head_dim ? dim : 0)];
        }
      }
    }
  }
  OCTAVO_GPU_FN void store(int32_t* shared, int first, bool is_keys) const {
    if (is_keys) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = opaque(thread()) + (first + i) * kFlashThreads, row = at / kQuads, unit = at % kQuads / 2;
        const int place = 32 * unit + row / 16 * 16 + (row % 16 ^ turn_of_key(unit));
        *reinterpret_cast<Words2*>(shared + 4 * place + at % 2 * 2) =
            Words2{{pack_bf16(held[i].v[0], held[i].v[1]), pack_bf16(held[i].v[2], held[i].v[3])}};
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTogether; i += kValueRun) {
        const int at = opaque(thread()) + (first + i) / kValueRun * kFlashThreads, dim = at % kDims, run = at / kDims, q = run * kValueRun / 2;
        int32_t* to = shared + ((dim / 16 * 4 + q) * 16 + (dim % 16 ^ turn_of_value(q))) * 4 + run * kValueRun % 2 * 2;
        if constexpr (kValueRun == 2) {
          *reinterpret_cast<Words4*>(to) =
              Words4{{pack_bf16(held[i].v[0], held[i].v[1]), pack_bf16(held[i].v[2], held[i].v[3]),
                      pack_bf16(held[i + 1].v[0], held[i + 1].v[1]), pack_bf16(held[i + 1].v[2], held[i + 1].v[3])}};
        } else {
          *reinterpret_cast<Words2*>(to) = Words2{{pack_bf16(held[i].v[0], held[i].v[1]), pack_bf16(held[i].v[2], held[i].v[3])}};
        }
      }
    }
  }
  // Where registers are few, nothing is on its way: runs go over a few at a time.
  OCTAVO_GPU_FN void finish(const RowSource& from, int32_t* shared, bool is_keys) {
    if constexpr (kIsAhead) {
      store(shared, 0, is_keys);
    } else {
#pragma unroll 1
      for (int first = 0; first < kEach; first += kTogether) {
        fetch(from, first, is_keys);
        store(shared, first, is_keys);
      }
    }
  }

  OCTAVO_GPU_FN void fetch_keys(const RowSource& from) {
    if constexpr (kIsAhead) fetch(from, 0, true);
  }
  OCTAVO_GPU_FN void fetch_values(const RowSource& from) {
    if constexpr (kIsAhead) fetch(from, 0, false);
  }
  OCTAVO_GPU_FN void store_keys(const RowSource& from, int32_t* shared, float*) { finish(from, shared, true); }
  OCTAVO_GPU_FN void store_values(const RowSource& from, int32_t* shared) { finish(from, shared, false); }
};

template <int kSteps>
OCTAVO_GPU_FN void varlen_attention_rounded(const Step& step, const VarlenAttentionArgs& a, int32_t* queries, int32_t* keys,
                                            int32_t* values) {
  constexpr int kTiles = kRoundedTiles<kSteps>, kRows = kTiles * kRowsOfTile;
  constexpr bool kIsShared = kRoundedShares<kSteps>;
  if (!has_packed_work<kFlashWaves * kRows>(step, a)) return;
  const PackedWork work = packed_work_of<kFlashWaves * kRows>(step, a);
  const PackedRows& rows = work.rows;
  if (work.count <= 0) return;
  const int32_t mine = uniform(wave()), first_row = work.first_row + mine * kRows;
  const int32_t left = rows.count - first_row, count = left < kRows ? left : kRows;
  if constexpr (kIsShared) {
    static_assert(kTiles == 1);
    queries += mine * kSteps * kStagedStep;
    stage_queries<RoundedUnits, kSteps>(queries, rows, first_row, lane(), kWave);
    sync_wave();
  }
  Flash<RoundedTiles, kSteps, kTiles, kIsShared> flash(rows, {keys, values}, first_row, queries, nullptr);
  RowSource source{{}, a, rows.token, work.kv_head};
  const int32_t from = rows.low(rows.position(work.first_row)), to = rows.high(rows.position(work.first_row + work.count - 1));
  take_staged<RowStage<kSteps>>(flash, source, keys, values, from, to, count);
  finish_rows(flash, rows, first_row);
}

}  // namespace octavo::gpu

#define OCTAVO_VARLEN_BF16_MMA(dims)                                                                                              \
  OCTAVO_KERNEL(varlen_attention_bf16_d##dims, mmafast, VarlenAttention, octavo::gpu::kFlashThreads,                               \
                (octavo::gpu::kFlashWaves * octavo::gpu::kRoundedTiles<dims / 32> * octavo::gpu::kRowsOfTile), 0,                  \
                OCTAVO_TWO_WAVES) {                                                                                                \
    OCTAVO_SHARED(octavo::gpu::Words4, queries, (octavo::gpu::kRoundedQueryWords<dims / 32> / 4));                                 \
    OCTAVO_SHARED(octavo::gpu::Words4, keys, (octavo::gpu::RowStage<dims / 32>::kWords / 4));                                      \
    OCTAVO_SHARED(octavo::gpu::Words4, values, (octavo::gpu::RowStage<dims / 32>::kValueWords / 4));                               \
    octavo::gpu::varlen_attention_rounded<dims / 32>(*step_, a, queries[0].w, keys[0].w,                                           \
                                                     octavo::gpu::RowStage<dims / 32>::kIsOne ? keys[0].w : values[0].w);          \
  }

// A unit of code for a chip has one size of heads.
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 64
OCTAVO_VARLEN_BF16_MMA(64)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 128
OCTAVO_VARLEN_BF16_MMA(128)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 192
OCTAVO_VARLEN_BF16_MMA(192)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 256
OCTAVO_VARLEN_BF16_MMA(256)
#endif

#endif
