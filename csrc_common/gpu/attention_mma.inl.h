// paged_attention_bf16 and _int8 on matrix units (levels mmafast and mmafastwide). The query heads of one kv head, of neighbouring
// tokens of a sequence, are the rows of a tile, so that keys and values are read once for all of them.
//
//   few   a sequence with less than kManyTokens tokens in the step: a block takes 16 rows, its four waves the tiles of 32 keys in
//         turn. Positions are cut every 512, and blocks share those cuts (block_z): each leaves its part in memory, and the one
//         that is last joins all parts in order. Cuts, and the order of joining, follow from positions alone; where there is no
//         memory for parts, or no second block, one block goes through all cuts and joins them alike.
//   many  a wave takes 16 or 32 rows of its own through all their keys.
//
// A row's result depends on its own sequence alone: on the keys, and on whether the step has many of its tokens. Level mmafast
// runs where no sequence can have many.
#pragma once

#include "gpu/attention_mma_tile.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kCut = 512;          // positions
constexpr int kManyTokens = 16;    // platforms/select.py MANY_FROM
constexpr int kFlashWaves = 4, kFlashThreads = kFlashWaves * kWave, kRowsOfTile = 16;
constexpr int kManyTiles = kUnits == 1 ? 2 : 1;  // of 16 rows, of a wave
#if defined(__GFX11__) || defined(__GFX12__) || defined(__CUDACC__)
constexpr int kMostSteps = 4;  // of 32 dimensions: more would not stay in registers (platforms/gpu/recorder.py, MOST_DIM)
#else
constexpr int kMostSteps = 8;
#endif
constexpr int kSpareTokens = 4;    // of a sequence, whose cuts blocks share in a step of many tokens

// What a block's waves tell each other.
struct FlashShared {
  float* parts;  // [wave][16][33]
  float* tops;   // [wave][16]
  float* sums;   // [wave][16]
  float* shrink; // [wave][16], what a wave's part is multiplied by; then [2][16]: of what was joined before and of this cut
  float* top;    // [16] of the cut, then of what was joined
  float* sum;    // [16]
  float* joined; // [2][16]: maxima and sums of what was joined
  int32_t* word;
};
#define OCTAVO_FLASH_SHARED(shared)                                                                 \
  OCTAVO_SHARED(float, shared_parts, octavo::gpu::kFlashWaves * 16 * 33);                           \
  OCTAVO_SHARED(float, shared_rows, 16 * (3 * octavo::gpu::kFlashWaves + 6));                       \
  OCTAVO_SHARED(int32_t, shared_word, 1);                                                           \
  constexpr int kFour = 16 * octavo::gpu::kFlashWaves;                                              \
  const octavo::gpu::FlashShared shared { shared_parts, shared_rows, shared_rows + kFour, shared_rows + 2 * kFour, \
    shared_rows + 3 * kFour + 32, shared_rows + 3 * kFour + 48, shared_rows + 3 * kFour + 64, shared_word }

// One cut joins what came before: the contract's fold.
struct Fold {
  float before, now;  // factors
};
OCTAVO_GPU_FN Fold fold_in(float& top, float& sum, float cut_top, float cut_sum) {
  const float new_top = larger(top, cut_top);
  const Fold f{exp2_fast(top - new_top), exp2_fast(cut_top - new_top)};
  sum = V::fma(sum, f.before, cut_sum * f.now);
  top = new_top;
  return f;
}
// A row's sink joins last: the factor of its weighted values.
OCTAVO_GPU_FN float fold_sink(float& top, float& sum, float sink) {
  const float x = sink * kLog2E, new_top = larger(top, x), before = exp2_fast(top - new_top);
  sum = V::fma(sum, before, exp2_fast(x - new_top));
  top = new_top;
  return before;
}

// A sequence's rows of one kv head.
struct Work {
  QueryRows rows;
  int64_t seq, kv_head;
  int32_t tokens, first_row, tile;
};

// Work number `unit`: sequence s has numbers query_start[s] * group / 16 + s on, no fewer than it has tiles of 16 rows; spare
// numbers, and those of sequences without tokens, are nobody's.
OCTAVO_GPU_FN int64_t units_before(const Step& step, int64_t seq, int64_t group) {
  return step.query_start[seq] * group / kRowsOfTile + seq;
}
OCTAVO_GPU_FN Work work_of(const Step& step, const PagedAttentionArgs& a, int64_t unit, int64_t kv_head) {
  const int64_t group = a.heads / a.kv_heads;
  int64_t seq = 0;
  for (int64_t end = step.num_seqs; seq + 1 < end;) {
    const int64_t middle = (seq + end) / 2;
    if (units_before(step, middle, group) <= unit) {
      seq = middle;
    } else {
      end = middle;
    }
  }
  const int64_t token = step.query_start[seq], first_head = kv_head * group;
  const int32_t tokens = step.query_start[seq + 1] - step.query_start[seq];
  Work w{{a.q + token * a.ldq + first_head * a.head_dim, a.y + token * a.ldy + first_head * a.head_dim, a.ldq, a.ldy,
          a.alibi ? a.alibi + first_head : nullptr, static_cast<int32_t>(group), static_cast<int32_t>(a.head_dim),
          static_cast<int32_t>(tokens * group), step.kv_len[seq] - tokens, static_cast<int32_t>(a.window)},
         seq, kv_head, tokens, 0, static_cast<int32_t>(unit - units_before(step, seq, group))};
  w.first_row = w.tile * kRowsOfTile;
  return w;
}

// The cut that waves have taken in becomes one: emits (row, dimension, value), leaves the rows' maxima and sums in shared.top
// and shared.sum. `ready()` runs in between, when those are known, by all threads.
template <class F, class Ready, class Emit>
OCTAVO_GPU_FN void join_waves(F& flash, int32_t count, const FlashShared& shared, Ready&& ready, Emit&& emit) {
  constexpr int kDims = 32;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const float sum = over_row(flash.sum[0][s], [](float x, float y) { return x + y; });
    if (speaks_for_row()) {
      shared.tops[wave() * 16 + query_row(s)] = flash.top[0][s];
      shared.sums[wave() * 16 + query_row(s)] = sum;
    }
  }
  sync();
  if (thread() < 16) {
    float top = kNone, sum = 0.0f;
    for (int w = 0; w < kFlashWaves; ++w) top = larger(top, shared.tops[w * 16 + thread()]);
    for (int w = 0; w < kFlashWaves; ++w) {
      const float shrink = exp2_fast(shared.tops[w * 16 + thread()] - top);
      shared.shrink[w * 16 + thread()] = shrink;
      sum = V::fma(shared.sums[w * 16 + thread()], shrink, sum);
    }
    shared.top[thread()] = top;
    shared.sum[thread()] = sum;
    ready(thread());
  }
  sync();
  constexpr int kPairs = sizeof(flash.out[0]) / sizeof(SumsF32) / 2;
#pragma unroll
  for (int c = 0; c < kPairs; ++c) {
#pragma unroll
    for (int d = 0; d < 2; ++d)
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int row = query_row(slot_of(i));
        shared.parts[(wave() * 16 + row) * (kDims + 1) + 16 * d + dim_of(i)] =
            flash.out[0][2 * c + d].v[i] * shared.shrink[wave() * 16 + row];
      }
    sync();
    for (int t = thread(); t < 16 * kDims; t += kFlashThreads) {
      const int row = t / kDims, d = t % kDims;
      float value = shared.parts[row * (kDims + 1) + d];
      for (int w = 1; w < kFlashWaves; ++w) value = value + shared.parts[(w * 16 + row) * (kDims + 1) + d];
      if (row < count && c * kDims + d < flash.rows.head_dim) emit(row, c * kDims + d, value);
    }
    sync();
  }
}

// Parts of cuts in memory: [slot][cut]{values [16][head_dim], maxima [16], sums [16]}.
struct Parts {
  float* at;
  int64_t cut_floats;
};
OCTAVO_GPU_FN Parts parts_of(const Step& step, const PagedAttentionArgs& a, const Work& w, int64_t unit, bool is_wide) {
  const int64_t group = a.heads / a.kv_heads, cut_floats = kRowsOfTile * (a.head_dim + 2);
  const int64_t reach = step.groups[a.group].table_stride * a.block_tokens;
  int64_t cuts = ceil_div(reach, kCut);
  if (a.window > 0 && (a.window + kManyTokens) / kCut + 2 < cuts) cuts = (a.window + kManyTokens) / kCut + 2;
  const int64_t spare = ceil_div(kSpareTokens * group, kRowsOfTile);
  const int64_t slot = (is_wide ? w.seq * spare + w.tile : unit) * a.kv_heads + w.kv_head;
  const bool is_there = (!is_wide || w.tile < spare) && (slot + 1) * cuts * cut_floats * 4 <= a.partials_bytes;
  return {is_there ? a.partials + slot * cuts * cut_floats : nullptr, cut_floats};
}

// The parts of all cuts become the rows' results.
OCTAVO_GPU_FN void join_cuts(const PagedAttentionArgs& a, const Work& w, const Parts& parts, int32_t cuts, int32_t count) {
  const int32_t head_dim = w.rows.head_dim;
  for (int32_t t = thread(); t < count * head_dim; t += kFlashThreads) {
    const int32_t row = t / head_dim;
    const float* part = parts.at;
    float value = part[t], top = part[kRowsOfTile * head_dim + row], sum = part[kRowsOfTile * (head_dim + 1) + row];
    for (int32_t cut = 1; cut < cuts; ++cut) {
      part += parts.cut_floats;
      const Fold f = fold_in(top, sum, part[kRowsOfTile * head_dim + row], part[kRowsOfTile * (head_dim + 1) + row]);
      value = V::fma(value, f.before, part[t] * f.now);
    }
    if (a.sinks) value = value * fold_sink(top, sum, a.sinks[w.kv_head * w.rows.group + (w.first_row + row) % w.rows.group]);
    w.rows.result(w.first_row + row)[t % head_dim] = value / sum;
  }
}

template <class KV, int kSteps>
OCTAVO_GPU_FN void attend_few(const Step& step, const PagedAttentionArgs& a, const Work& w, const Parts& parts,
                              const FlashShared& shared) {
  const int32_t left = w.rows.count - w.first_row, count = left < kRowsOfTile ? left : kRowsOfTile;
  const int32_t from = w.rows.low(w.rows.position(w.first_row)), to = w.rows.position(w.first_row + count - 1);
  const int32_t first_cut = from / kCut, cuts = to / kCut - first_cut + 1;
  const bool is_shared = cuts > 1 && num_blocks_z() > 1 && parts.at != nullptr;
  if (block_z() >= (is_shared ? cuts : 1)) return;
  const int32_t apart = is_shared ? num_blocks_z() : 1;
  Flash<KV, kSteps, 1> flash(w.rows, HeadPages<KV>(a, step, w.seq, w.kv_head), w.first_row, a);
  for (int32_t cut = block_z(); cut < cuts; cut += apart) {
    constexpr int32_t kTiles = kCut / kKeys;
    const int32_t first_tile = (first_cut + cut) * kTiles, low = from / kKeys, high = to / kKeys;
    const int32_t end = first_tile + kTiles - 1 < high ? first_tile + kTiles - 1 : high;
    int32_t mine = first_tile + wave();
    while (mine < low) mine += kFlashWaves;
    if (cut >= apart) flash.clear();
    flash.take_all(mine, end, kFlashWaves, count);
    if (is_shared) {
      float* part = parts.at + cut * parts.cut_floats;
      join_waves(
          flash, count, shared,
          [&](int row) {
            part[kRowsOfTile * w.rows.head_dim + row] = shared.top[row];
            part[kRowsOfTile * (w.rows.head_dim + 1) + row] = shared.sum[row];
          },
          [&](int row, int dim, float value) { part[row * w.rows.head_dim + dim] = value; });
      continue;
    }
    const bool is_last = cut == cuts - 1;
    join_waves(
        flash, count, shared,
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
            shared.joined[row] = fold_sink(top, sum, a.sinks[w.kv_head * w.rows.group + (w.first_row + row) % w.rows.group]);
            shared.joined[16 + row] = sum;
          }
        },
        [&](int row, int dim, float value) {
          float& y = w.rows.result(w.first_row + row)[dim];  // the same thread's in every cut
          value = cut > 0 ? V::fma(y, shared.sum[row], value * shared.top[row]) : value;
          if (is_last && a.sinks) value = value * shared.joined[row];
          y = is_last ? value / shared.joined[16 + row] : value;
        });
  }
  if (!is_shared) return;
  const int32_t blocks = cuts < apart ? cuts : apart;
  Counter* counter = a.counters + w.seq * a.heads + w.kv_head * w.rows.group + w.tile;  // fewer tiles than query heads
  release();
  sync();
  if (thread() == 0) *shared.word = count_up(counter) == blocks - 1;
  sync();
  if (!*shared.word) return;
  acquire();
  join_cuts(a, w, parts, cuts, count);
  if (thread() == 0) *counter = 0;
}

template <class KV, int kSteps>
OCTAVO_GPU_FN void attend_many(const Step& step, const PagedAttentionArgs& a, const Work& w) {
  constexpr int kTiles = kSteps > 4 ? 1 : kManyTiles;
  const int32_t first_row = (w.tile * kFlashWaves + wave()) * kTiles * kRowsOfTile;
  if (first_row >= w.rows.count || block_z() > 0) return;
  const int32_t left = w.rows.count - first_row, count = left < kTiles * kRowsOfTile ? left : kTiles * kRowsOfTile;
  Flash<KV, kSteps, kTiles> flash(w.rows, HeadPages<KV>(a, step, w.seq, w.kv_head), first_row, a);
  const int32_t from = w.rows.low(w.rows.position(first_row)), to = w.rows.position(first_row + count - 1);
  flash.take_all(from / kKeys, to / kKeys, 1, count);
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int32_t row = first_row + 16 * t + query_row(s);
      float sum = over_row(flash.sum[t][s], [](float x, float y) { return x + y; }), before = 1.0f;
      if (row >= w.rows.count) continue;
      if (a.sinks) before = fold_sink(flash.top[t][s], sum, a.sinks[w.kv_head * w.rows.group + row % w.rows.group]);
      float* y = w.rows.result(row);
#pragma unroll
      for (int d = 0; d < 2 * kSteps; ++d)
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const int32_t dim = 16 * d + dim_of(i);
          if (slot_of(i) == s && dim < w.rows.head_dim) y[dim] = flash.out[t][d].v[i] * before / sum;
        }
    }
}

template <class KV, int kSteps, bool kWide>
OCTAVO_GPU_FN void attend_units(const Step& step, const PagedAttentionArgs& a, const FlashShared& shared) {
  const int64_t units = units_before(step, step.num_seqs, a.heads / a.kv_heads);
  OCTAVO_EACH(unit, units) {
    const Work w = work_of(step, a, unit, block_y());
    if (kWide && w.tokens >= kManyTokens) {
      attend_many<KV, kSteps>(step, a, w);
    } else if (w.first_row < w.rows.count) {
      attend_few<KV, kSteps>(step, a, w, parts_of(step, a, w, unit, kWide), shared);
    }
  }
}

template <class KV, bool kWide>
OCTAVO_GPU_FN void paged_attention_mma(const Step& step, const PagedAttentionArgs& a, const FlashShared& shared) {
  if (a.head_dim <= 64) {
    attend_units<KV, 2, kWide>(step, a, shared);
  } else if (a.head_dim <= 128) {
    attend_units<KV, 4, kWide>(step, a, shared);
  } else if constexpr (kMostSteps > 4) {
    attend_units<KV, 8, kWide>(step, a, shared);
  }
}

}  // namespace octavo::gpu

#define OCTAVO_ATTENTION_MMA(dtype, KV)                                                                                       \
  OCTAVO_KERNEL(paged_attention_##dtype, mmafast, PagedAttention, octavo::gpu::kFlashThreads, octavo::gpu::kRowsOfTile, 0,       \
                OCTAVO_TWO_WAVES) {                                                                                        \
    OCTAVO_FLASH_SHARED(shared);                                                                                              \
    octavo::gpu::paged_attention_mma<octavo::gpu::KV, false>(*step_, a, shared);                                              \
  }                                                                                                                           \
  OCTAVO_KERNEL(paged_attention_##dtype, mmafastwide, PagedAttention, octavo::gpu::kFlashThreads, octavo::gpu::kRowsOfTile, 0,   \
                OCTAVO_TWO_WAVES) {                                                                                        \
    OCTAVO_FLASH_SHARED(shared);                                                                                              \
    octavo::gpu::paged_attention_mma<octavo::gpu::KV, true>(*step_, a, shared);                                               \
  }
OCTAVO_ATTENTION_MMA(bf16, KVBF16)
OCTAVO_ATTENTION_MMA(int8, KVI8)

#endif
