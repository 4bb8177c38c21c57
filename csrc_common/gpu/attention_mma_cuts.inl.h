// Positions are cut every 512, and how parts become one: the cuts' parts of a block's waves, then the parts of all cuts, in order.
// Cuts, and the order of joining, follow from positions alone, so that results do not depend on who took which cut.
#pragma once

#include "gpu/attention_mma_tile.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kCut = 512;          // positions
constexpr int kManyTokens = 16;    // platforms/select.py MANY_FROM
constexpr int kFlashWaves = 4, kFlashThreads = kFlashWaves * kWave, kRowsOfTile = 16;
constexpr int kSpareTokens = 4;    // of a sequence, whose cuts blocks share in a step of many tokens

// What a block's waves tell each other.
struct FlashShared {
  float* parts;     // [wave][16][33]
  float* tops;      // [wave][16]
  float* sums;      // [wave][16]
  float* shrink;    // [wave][16], what a wave's part is multiplied by; then [2][16]: of what was joined before and of this cut
  float* top;       // [16] of the cut, then of what was joined
  float* sum;       // [16]
  float* joined;    // [2][16]: maxima and sums of what was joined
  int32_t* word;
  int32_t* queries; // as stage_queries leaves them
  float* scales;    // [wave][64]
};
#define OCTAVO_FLASH_SHARED(shared, query_words, scale_waves)                                       \
  OCTAVO_SHARED(float, shared_parts, octavo::gpu::kFlashWaves * 16 * 33);                           \
  OCTAVO_SHARED(float, shared_rows, 16 * (3 * octavo::gpu::kFlashWaves + 6));                       \
  OCTAVO_SHARED(int32_t, shared_word, 1);                                                           \
  OCTAVO_SHARED(octavo::gpu::Words4, shared_queries, (query_words) / 4);                            \
  OCTAVO_SHARED(octavo::gpu::Floats4, shared_scales, (scale_waves) * 16);                           \
  constexpr int kFour = 16 * octavo::gpu::kFlashWaves;                                              \
  const octavo::gpu::FlashShared shared { shared_parts, shared_rows, shared_rows + kFour, shared_rows + 2 * kFour, \
    shared_rows + 3 * kFour + 32, shared_rows + 3 * kFour + 48, shared_rows + 3 * kFour + 64, shared_word,         \
    shared_queries[0].w, shared_scales[0].v }

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
  int32_t seq, kv_head;
  int32_t tokens, first_row, tile;
};

// Work number `unit` of `most` rows: sequence s has numbers query_start[s] * group / most + s on, no fewer than it has tiles of so
// many rows; spare numbers, and those of sequences without tokens, are nobody's.
OCTAVO_GPU_FN int32_t units_before(const Step& step, int32_t seq, int32_t group, int32_t most) {
  return load_uniform(step.query_start + seq) * group / most + seq;
}
OCTAVO_GPU_FN int32_t seq_of(const Step& step, int32_t unit, int32_t group, int32_t most) {
  int32_t seq = 0;
  for (auto end = static_cast<int32_t>(step.num_seqs); seq + 1 < end;) {
    const int32_t middle = (seq + end) / 2;
    if (units_before(step, middle, group, most) <= unit) {
      seq = middle;
    } else {
      end = middle;
    }
  }
  return seq;
}
OCTAVO_GPU_FN Work work_of(const Step& step, const PagedAttentionArgs& a, int32_t unit, int32_t most, int32_t kv_head) {
  const auto group = static_cast<int32_t>(a.heads / a.kv_heads);
  const int32_t seq = seq_of(step, unit, group, most);
  const int32_t token = load_uniform(step.query_start + seq), tokens = load_uniform(step.query_start + seq + 1) - token;
  Work w{{{a, token, kv_head * group, group, tokens * group, load_uniform(step.kv_len + seq) - tokens}},
         seq, kv_head, tokens, 0, unit - units_before(step, seq, group, most)};
  w.first_row = w.tile * most;
  return w;
}

// What waves have taken in of tile `t` of 16 rows becomes one: emits (row, first dimension, values of four), leaves the rows' maxima
// and sums in shared.top and shared.sum. `ready(row)` runs in between, when those are known.
template <class F, class Ready, class Emit>
OCTAVO_GPU_FN void join_waves(F& flash, int t, int32_t head_dim, int32_t count, const FlashShared& shared, Ready&& ready, Emit&& emit) {
  constexpr int kDims = 32;
  const int nothing = opaque_uniform(0);  // so that no address is computed before all cuts
  const int mine = 16 * uniform(opaque(thread()) / kWave);
  float *tops = shared.tops + nothing, *sums = shared.sums + nothing, *shrinks = shared.shrink + nothing, *parts = shared.parts + nothing;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const float sum = over_row(flash.sum[t][s], [](float x, float y) { return x + y; });
    if (speaks_for_row()) {
      tops[mine + query_row(s)] = flash.top[t][s];
      sums[mine + query_row(s)] = sum;
    }
  }
  sync();
  if (const int row = opaque(thread()); row < 16) {
    float top = kNone, sum = 0.0f;
    for (int w = 0; w < kFlashWaves; ++w) top = larger(top, tops[w * 16 + row]);
    for (int w = 0; w < kFlashWaves; ++w) {
      const float shrink = exp2_fast(tops[w * 16 + row] - top);
      shrinks[w * 16 + row] = shrink;
      sum = V::fma(sums[w * 16 + row], shrink, sum);
    }
    shared.top[row] = top;
    shared.sum[row] = sum;
    ready(row);
  }
  sync();
  float shrink[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) shrink[s] = shrinks[mine + query_row(s)];
  float* to[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) to[s] = parts + (mine + opaque(query_row(s))) * (kDims + 1) + opaque(dim_of(0));
  constexpr int kPairs = sizeof(flash.out[t]) / sizeof(SumsF32) / 2;
#pragma unroll
  for (int c = 0; c < kPairs; ++c) {
#pragma unroll
    for (int d = 0; d < 2; ++d)
#pragma unroll
      for (int i = 0; i < kValues; ++i) to[slot_of(i)][16 * d + dim_of(i) - dim_of(0)] = flash.out[t][2 * c + d].v[i] * shrink[slot_of(i)];
    sync();
    if (const int at = opaque(thread()); at < 16 * kDims / 4) {
      const int row = at / (kDims / 4), d = at % (kDims / 4) * 4;
      if (row < count && c * kDims + d < head_dim) {
        Floats4 value;
#pragma unroll
        for (int i = 0; i < 4; ++i) value.v[i] = parts[row * (kDims + 1) + d + i];
#pragma unroll
        for (int w = 1; w < kFlashWaves; ++w)
#pragma unroll
          for (int i = 0; i < 4; ++i) value.v[i] = value.v[i] + parts[(w * 16 + row) * (kDims + 1) + d + i];
        emit(row, c * kDims + d, value);
      }
    }
    sync();
  }
}

// Parts of cuts in memory: [slot][cut]{values [16][head_dim], maxima [16], sums [16]}.
struct Parts {
  float* at;
  int32_t head_dim;
  OCTAVO_GPU_FN int64_t cut_floats() const { return kRowsOfTile * (head_dim + 2); }
  OCTAVO_GPU_FN float* values(int32_t cut, int row) const { return at + cut * cut_floats() + row * head_dim; }
  OCTAVO_GPU_FN float& top(int32_t cut, int row) const { return at[cut * cut_floats() + kRowsOfTile * head_dim + row]; }
  OCTAVO_GPU_FN float& sum(int32_t cut, int row) const { return at[cut * cut_floats() + kRowsOfTile * (head_dim + 1) + row]; }
};
OCTAVO_GPU_FN Parts parts_of(const Step& step, const PagedAttentionArgs& a, const Work& w, int64_t unit) {
  const int64_t group = a.heads / a.kv_heads, cut_floats = kRowsOfTile * (a.head_dim + 2);
  const int64_t reach = step.groups[a.group].table_stride * a.block_tokens;
  int64_t cuts = ceil_div(reach, kCut);
  if (a.window > 0 && (a.window + kManyTokens) / kCut + 2 < cuts) cuts = (a.window + kManyTokens) / kCut + 2;
  const bool is_wide = step.num_tokens >= kManyTokens;
  const int64_t spare = ceil_div(kSpareTokens * group, kRowsOfTile);
  const int64_t slot = (is_wide ? w.seq * spare + w.tile : unit) * a.kv_heads + w.kv_head;
  const bool is_there = (!is_wide || w.tile < spare) && (slot + 1) * cuts * cut_floats * 4 <= a.partials_bytes;
  return {is_there ? a.partials + slot * cuts * cut_floats : nullptr, static_cast<int32_t>(a.head_dim)};
}

// Blocks that share a sequence count twice in one counter: as each has taken in its last cut, and as its parts lie in memory. The
// last of the first count joins all parts, so its own last part need not go by memory; those that it waits for are under way.
constexpr int32_t kStored = 1 << 16;
OCTAVO_GPU_FN bool is_last_block(Counter* counter, int32_t blocks, int32_t* word) {
  if (thread() == 0) *word = count_up(counter, 1) % kStored == blocks - 1;
  sync();
  return uniform(*word) != 0;
}
OCTAVO_GPU_FN void await_blocks(Counter* counter, int32_t blocks) {
  if (thread() == 0)
    while (count_of(counter) / kStored != blocks - 1) {
    }
  sync();
  acquire();
}

// All cuts' values of a row's four dimensions in order; those of cut `mine`, with the maximum `my_top`, are `value`.
OCTAVO_GPU_FN void join_cuts(Floats4& value, const Parts& parts, int32_t cuts, int32_t mine, float my_top, int row, int dim) {
  Floats4 all = {};
  float top = kNone, nothing = 0.0f;
#pragma unroll 1
  for (int32_t cut = opaque_uniform(0); cut < cuts; ++cut) {
    Floats4 x = value;
    float cut_top = my_top;
    if (cut != mine) {
      x = *reinterpret_cast<const Floats4*>(parts.values(cut, row) + dim);
      cut_top = parts.top(cut, row);
    }
    const Fold f = fold_in(top, nothing, cut_top, 0.0f);  // the first one: 0 and 1
#pragma unroll
    for (int i = 0; i < 4; ++i) all.v[i] = V::fma(all.v[i], f.before, x.v[i] * f.now);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) value.v[i] = all.v[i];
}
// A row's maximum and sum over all cuts.
OCTAVO_GPU_FN void join_sums(float& top, float& sum, const Parts& parts, int32_t cuts, int32_t mine, int row) {
  const float my_top = top, my_sum = sum;
#pragma unroll 1
  for (int32_t cut = 0; cut < cuts; ++cut) {
    const float cut_top = cut == mine ? my_top : parts.top(cut, row), cut_sum = cut == mine ? my_sum : parts.sum(cut, row);
    if (cut == 0) {
      top = cut_top;
      sum = cut_sum;
    } else {
      fold_in(top, sum, cut_top, cut_sum);
    }
  }
}

}  // namespace octavo::gpu

#endif
