// paged_attention_<kv dtype>_d<N> on matrix units, of heads of up to N dimensions. The query heads of one kv head, of neighbouring
// tokens of a sequence, are the rows of a tile, so that keys and values are read once for all of them.
//
//   mmafast      sequences with less than kManyTokens tokens in the step: a block takes 16 rows, its four waves the tiles of 32 keys
//                in turn, each with a share of every cut of 512 positions. Blocks share those cuts (block_z): they leave their
//                parts in memory, and the last one joins all of them in order with its own. Where there is no memory for parts, or no
//                second block, one block goes through all cuts and joins them alike.
//   mmafastwide  sequences with more, beside mmafast, which has the rest of the step: a wave takes 16 or 32 rows of its own through
//                all their keys, which a block's waves share through shared memory where that pays (kSharesKeys).
//
// A row's result depends on its own sequence alone: on the keys, and on whether the step has many of its tokens.
#pragma once

#include "gpu/attention_mma_stage.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// Of 16 rows, that a wave takes together.
template <class KV, int steps>
constexpr int kManyTiles = kUnits == 1 && steps * KVUnits<KV>::kParts <= 4 ? 2 : 1;
// Whether a wave's queries do without registers where it has many rows.
template <class KV, int steps>
constexpr bool kSharesQueries = !kSharesKeys<KV, steps> && (kUnits > 2 || steps * KVUnits<KV>::kParts > 4);

// Whether the last block's last part goes from registers to the result: ptxas spills there, with sums of large heads in registers.
template <int steps>
constexpr bool kKeepsPart = !kQueryIsA || steps <= 6;

template <class KV, int kSteps>
OCTAVO_GPU_FN void attend_few(const Step& step, const PagedAttentionArgs& a, const Work& w, const Parts& parts,
                              const FlashShared& shared) {
  const int32_t left = w.rows.count - w.first_row, count = left < kRowsOfTile ? left : kRowsOfTile;
  const int32_t from = w.rows.low(w.rows.position(w.first_row)), to = w.rows.position(w.first_row + count - 1);
  const int32_t first_cut = from / kCut, cuts = to / kCut - first_cut + 1;
  const bool is_shared = cuts > 1 && num_blocks_z() > 1 && parts.at != nullptr;
  if (block_z() >= (is_shared ? cuts : 1)) return;
  const int32_t apart = is_shared ? num_blocks_z() : 1;
  stage_queries<KVUnits<KV>, kSteps>(shared.queries, w.rows, w.first_row, thread(), kFlashThreads);
  sync();
  const int32_t mine = uniform(wave());
  Flash<PageTiles<KV>, kSteps, 1, true> flash(w.rows, PageTiles<KV>(RunPages<KV>(a, step, w.seq, w.kv_head)), w.first_row,
                                              shared.queries, KV::kHasScales ? shared.scales + 64 * mine : nullptr);
  const auto counter = [&] {  // computed where it is asked for, as are places of parts; there are fewer tiles than query heads
    return a.counters + opaque_uniform(w.seq) * a.heads + w.kv_head * w.rows.group + w.tile;
  };
  bool joins = false;
  for (int32_t cut = block_z(); cut < cuts; cut += apart) {
    constexpr int32_t kTiles = kCut / kKeys;
    const int32_t first_tile = (first_cut + cut) * kTiles, low = from / kKeys, high = to / kKeys;
    const int32_t end = first_tile + kTiles - 1 < high ? first_tile + kTiles - 1 : high;
    int32_t tile = first_tile + mine;
    while (tile < low) tile += kFlashWaves;
    if (cut >= apart) flash.clear();
    flash.take_all(tile, end, kFlashWaves, count);
    const bool is_last = cut + apart >= cuts;  // of this block
    if (is_shared) {
      const int32_t blocks = cuts < apart ? cuts : apart;
      joins = is_last && is_last_block(counter(), blocks, shared.word);
      if (joins) await_blocks(counter(), blocks);
      const auto join_all = [&](Floats4& value, int row, int dim) {
        join_cuts(value, parts, cuts, cut, shared.top[row], row, dim);
#pragma unroll
        for (int i = 0; i < 4; ++i) value.v[i] = value.v[i] * shared.joined[row] / shared.joined[16 + row];
        store_four(w.rows.result(w.first_row + row) + dim, value);
      };
      join_waves(
          flash, 0, w.rows.head_dim(), count, shared,
          [&](int row) {
            float top = shared.top[row], sum = shared.sum[row];
            if (!joins) {
              parts.top(cut, row) = top;
              parts.sum(cut, row) = sum;
              return;
            }
            join_sums(top, sum, parts, cuts, cut, row);
            shared.joined[row] = a.sinks ? fold_sink(top, sum, a.sinks[w.rows.head_of(w.first_row + row)]) : 1.0f;
            shared.joined[16 + row] = sum;
          },
          [&](int row, int dim, Floats4& value) {
            if (kKeepsPart<kSteps> && joins) {
              join_all(value, row, dim);
            } else {
              store_four(parts.values(cut, row) + dim, value);
            }
          });
      if (!kKeepsPart<kSteps> && joins) {
        for (int32_t at = 4 * thread(); at < count * w.rows.head_dim(); at += 4 * kFlashThreads) {
          const int row = at / w.rows.head_dim(), dim = at % w.rows.head_dim();
          Floats4 value = *reinterpret_cast<const Floats4*>(parts.values(cut, row) + dim);
          join_all(value, row, dim);
        }
      }
      continue;
    }
    join_waves(
        flash, 0, w.rows.head_dim(), count, shared,
        [&](int row) {
          float top = shared.top[row], sum = shared.sum[row];
          Fold f{0.0f, 1.0f};
          if (cut > 0) {
            top = shared.joined[row];
            sum = shared.joined[16 + row];
            f = fold_in(top, sum, shared.top[row], shared.sum[row]);
          }
          shared.joined[row] = top;
          shared.joined[16 + row] = sum;
          shared.top[row] = f.now;
          shared.sum[row] = f.before;
          if (is_last && a.sinks) {
            shared.joined[row] = fold_sink(top, sum, a.sinks[w.rows.head_of(w.first_row + row)]);
            shared.joined[16 + row] = sum;
          }
        },
        [&](int row, int dim, Floats4& value) {
          float* y = w.rows.result(w.first_row + row) + dim;  // the same thread's in every cut
          Floats4 before = {};
          if (cut > 0) before = *reinterpret_cast<const Floats4*>(y);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float x = value.v[i];
            x = cut > 0 ? V::fma(before.v[i], shared.sum[row], x * shared.top[row]) : x;
            if (is_last && a.sinks) x = x * shared.joined[row];
            value.v[i] = is_last ? x / shared.joined[16 + row] : x;
          }
          store_four(y, value);
        });
  }
  if (!is_shared) return;
  if (!joins) release();
  sync();
  if (thread() != 0) return;
  if (joins) {
    *counter() = 0;
  } else {
    count_up(counter(), kStored);
  }
}

// What a block for many tokens keeps in shared memory: queries, and scales of every wave; or keys, values, and scales of the block.
struct ManyShared {
  int32_t* queries;
  float* scales;
  int32_t *keys, *values;
};

template <class KV, int kSteps>
OCTAVO_GPU_FN void attend_many(const Step& step, const PagedAttentionArgs& a, const Work& w, const ManyShared& shared) {
  constexpr int kTiles = kManyTiles<KV, kSteps>, kRows = kTiles * kRowsOfTile, kParts = KVUnits<KV>::kParts;
  constexpr bool kIsShared = kSharesQueries<KV, kSteps>;
  const int32_t mine = uniform(wave()), first_row = w.first_row + mine * kRows;
  const int32_t left = w.rows.count - first_row, count = left < kRows ? left : kRows;
  const RunPages<KV> pages(a, step, w.seq, w.kv_head);
  if constexpr (kSharesKeys<KV, kSteps>) {
    const int32_t most = kFlashWaves * kRows, rows = w.rows.count - w.first_row < most ? w.rows.count - w.first_row : most;
    if (rows <= 0) return;
    Flash<StagedTiles<KV>, kSteps, kTiles, false> flash(w.rows, {shared.keys, shared.values}, first_row, nullptr, shared.scales);
    TileRuns<KV> runs(pages);
    const int32_t from = w.rows.low(w.rows.position(w.first_row)), to = w.rows.position(w.first_row + rows - 1);
    take_staged<TileStage<KV, kSteps>>(flash, runs, shared.keys, shared.values, from, to, count);
    finish_rows(flash, w.rows, first_row);
  } else {
    if (count <= 0) return;
    int32_t* queries = shared.queries;
    if constexpr (kIsShared) {
      queries += mine * kTiles * kParts * kSteps * kStagedStep;
      for (int t = 0; t < kTiles; ++t)
        stage_queries<KVUnits<KV>, kSteps>(queries + t * kParts * kSteps * kStagedStep, w.rows, first_row + 16 * t, lane(), kWave);
      sync_wave();
    }
    Flash<PageTiles<KV>, kSteps, kTiles, kIsShared> flash(w.rows, PageTiles<KV>(pages), first_row, queries, shared.scales + 64 * mine);
    const int32_t from = w.rows.low(w.rows.position(first_row)), to = w.rows.position(first_row + count - 1);
    flash.take_all(from / kKeys, to / kKeys, 1, count);
    finish_rows(flash, w.rows, first_row);
  }
}

template <class KV, int kSteps>
OCTAVO_GPU_FN void paged_attention_few(const Step& step, const PagedAttentionArgs& a, const FlashShared& shared) {
  const auto group = static_cast<int32_t>(a.heads / a.kv_heads), seqs = static_cast<int32_t>(step.num_seqs);
  if (block_x() >= units_before(step, seqs, group, kRowsOfTile)) return;
  const Work w = work_of(step, a, block_x(), kRowsOfTile, block_y());
  if (w.tokens >= kManyTokens || w.first_row >= w.rows.count) return;
  attend_few<KV, kSteps>(step, a, w, parts_of(step, a, w, block_x()), shared);
}

template <class KV, int kSteps>
OCTAVO_GPU_FN void paged_attention_many(const Step& step, const PagedAttentionArgs& a, const ManyShared& shared) {
  constexpr int kRows = kFlashWaves * kManyTiles<KV, kSteps> * kRowsOfTile;
  const auto group = static_cast<int32_t>(a.heads / a.kv_heads), seqs = static_cast<int32_t>(step.num_seqs);
  if (block_x() >= units_before(step, seqs, group, kRows)) return;
  const Work w = work_of(step, a, block_x(), kRows, block_y());
  if (w.tokens >= kManyTokens) attend_many<KV, kSteps>(step, a, w, shared);
}

}  // namespace octavo::gpu

// Words of shared memory that `waves` waves need for queries, and waves that need room for scales.
#define OCTAVO_QUERY_WORDS(KV, dims, tiles) \
  ((tiles) * octavo::gpu::KVUnits<octavo::gpu::KV>::kParts * (dims) / 32 * octavo::gpu::kStagedStep)
#define OCTAVO_SCALE_WAVES(KV) (octavo::gpu::KV::kHasScales ? octavo::gpu::kFlashWaves : 1)
#define OCTAVO_MANY_TILES(KV, dims) (octavo::gpu::kFlashWaves * octavo::gpu::kManyTiles<octavo::gpu::KV, dims / 32>)
#define OCTAVO_MANY_WORDS(KV, dims) \
  (octavo::gpu::kSharesQueries<octavo::gpu::KV, dims / 32> ? OCTAVO_QUERY_WORDS(KV, dims, OCTAVO_MANY_TILES(KV, dims)) : 4)
#define OCTAVO_KEY_UNITS(KV, dims) \
  (octavo::gpu::kSharesKeys<octavo::gpu::KV, dims / 32> ? octavo::gpu::TileStage<octavo::gpu::KV, dims / 32>::kCount : 1)
#define OCTAVO_ATTENTION_MMA(dtype, KV, dims)                                                                                       \
  OCTAVO_KERNEL(paged_attention_##dtype##_d##dims, mmafast, PagedAttention, octavo::gpu::kFlashThreads, octavo::gpu::kRowsOfTile, 0, \
                OCTAVO_WAVES(4)) {                                                                                                  \
    OCTAVO_FLASH_SHARED(shared, OCTAVO_QUERY_WORDS(KV, dims, 1), OCTAVO_SCALE_WAVES(KV));                                            \
    octavo::gpu::paged_attention_few<octavo::gpu::KV, dims / 32>(*step_, a, shared);                                                 \
  }                                                                                                                                  \
  OCTAVO_KERNEL(paged_attention_##dtype##_d##dims, mmafastwide, PagedAttention, octavo::gpu::kFlashThreads,                          \
                (OCTAVO_MANY_TILES(KV, dims) * octavo::gpu::kRowsOfTile), 0, OCTAVO_TWO_WAVES) {                                     \
    OCTAVO_SHARED(octavo::gpu::Words4, queries, (OCTAVO_MANY_WORDS(KV, dims) / 4));                                                  \
    OCTAVO_SHARED(octavo::gpu::Floats4, scales, OCTAVO_SCALE_WAVES(KV) * 16);                                                        \
    OCTAVO_SHARED(octavo::gpu::Words4, keys, (OCTAVO_KEY_UNITS(KV, dims)));                                                          \
    OCTAVO_SHARED(octavo::gpu::Words4, values, (OCTAVO_KEY_UNITS(KV, dims)));                                                        \
    octavo::gpu::paged_attention_many<octavo::gpu::KV, dims / 32>(*step_, a, {queries[0].w, scales[0].v, keys[0].w, values[0].w});   \
  }
#define OCTAVO_ATTENTION_MMA_DIMS(dims)   \
  OCTAVO_ATTENTION_MMA(bf16, KVBF16, dims) \
  OCTAVO_ATTENTION_MMA(int8, KVI8, dims) \
  OCTAVO_ATTENTION_MMA(fp8, KVF8, dims)
// Of float16: queries take twice the room, which larger heads have not; and gfx90a takes denormal numbers of them for zero.
#if defined(__gfx90a__)
#define OCTAVO_ATTENTION_MMA_F16(dims)
#else
#define OCTAVO_ATTENTION_MMA_F16(dims) OCTAVO_ATTENTION_MMA(f16, KVF16, dims)
#endif

// A unit of code for a chip has one size of heads.
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 64
OCTAVO_ATTENTION_MMA_DIMS(64)
OCTAVO_ATTENTION_MMA_F16(64)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 128
OCTAVO_ATTENTION_MMA_DIMS(128)
OCTAVO_ATTENTION_MMA_F16(128)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 192
OCTAVO_ATTENTION_MMA_DIMS(192)
#endif
#if !defined(OCTAVO_HEAD_DIM) || OCTAVO_HEAD_DIM == 256
OCTAVO_ATTENTION_MMA_DIMS(256)
#endif

#endif
