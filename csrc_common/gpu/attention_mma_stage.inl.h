// Keys and values of 32 positions in shared memory, for the waves of a block that have other rows of one kv head: read from memory
// once, in whole lines. Keys are in one buffer, values in the other: while waves work on one, the other is on its way to
// registers, and then goes to shared memory, with one barrier each.
//
// Units of 16 bytes lie as operands want them: keys [unit of the row][half][row of an operand], values of two bytes
// [tile of 16 dimensions][unit_q][dimension], of one byte [tile][run][dimension]. Places among 16 are turned, so that neither
// those who store neighbouring units nor those who read 16 rows meet in a bank.
#pragma once

#include "gpu/attention_mma_cuts.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// Where it pays: not where a lane holds whole rows of operands, twice in a wave (RDNA 3: no registers are left for what is on its way,
// and shared memory would be read twice), and not where queries take the shared memory (waves of 32 lanes, large heads).
template <class KV, int kSteps>
constexpr bool kSharesKeys = kUnits == 1 || (kUnits == 2 && kSteps * KVUnits<KV>::kParts <= 4);

OCTAVO_GPU_FN constexpr int turn_of_key(int unit) { return 2 * (unit % 4) + unit / 4 % 2; }
OCTAVO_GPU_FN constexpr int turn_of_value(int q) { return 4 * (q % 2) + q / 2 * 2; }

template <class KV, int kSteps>
struct TileStage {
  using T = typename KV::T;
  static constexpr bool kIsOne = false;  // buffer for keys and values
  static constexpr int kBytes = sizeof(T), kDims = 32 * kSteps;
  static constexpr int kRowUnits = kDims * kBytes / 16;  // of a key
  static constexpr int kCount = 32 * kRowUnits, kWords = 4 * kCount, kEach = (kCount + kFlashThreads - 1) / kFlashThreads;
  Words4 held[kEach];
  float scale;

  template <class Each>
  static OCTAVO_GPU_FN void each_unit(Each&& each) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kFlashThreads;
      if (kCount % kFlashThreads == 0 || at < kCount) each(i, at);
    }
  }
  OCTAVO_GPU_FN void fetch_keys(const TileRuns<KV>& runs) {
    const int32_t row_bytes = runs.pages.row_bytes;
    each_unit([&](int i, int at) {
      const int row = at / kRowUnits, unit = at % kRowUnits, token = token_of_row(row / 16, row % 16);
      const auto offset = static_cast<uint32_t>(token % kTokenRun * row_bytes + (16 * unit < row_bytes ? 16 * unit : 0));
      held[i] = *reinterpret_cast<const Words4*>((token < kTokenRun ? runs.first.keys : runs.second.keys) + offset);
    });
    if constexpr (KV::kHasScales) {
      if (thread() < 64) scale = runs.pages.scale(runs.first, runs.second, thread());
    }
  }
  OCTAVO_GPU_FN void store_keys(const TileRuns<KV>&, int32_t* shared, float* scales) const {
    each_unit([&](int i, int at) {
      const int row = at / kRowUnits, unit = at % kRowUnits;
      store(shared + (32 * unit + row / 16 * 16 + (row % 16 ^ turn_of_key(unit))) * 4, i);
    });
    if constexpr (KV::kHasScales) {
      if (thread() < 64) scales[thread()] = scale;
    }
  }
  OCTAVO_GPU_FN void fetch_values(const TileRuns<KV>& runs) {
    constexpr int kRun = kCount / 2;
    const int32_t count = runs.pages.row_bytes;  // of a run
    each_unit([&](int i, int at) {
      const int of = at % kRun, there = of < count ? of : of % (16 * kBytes);
      const uint8_t* values = (at < kRun ? runs.first.keys : runs.second.keys) + runs.pages.values_from;
      held[i] = *reinterpret_cast<const Words4*>(values + static_cast<uint32_t>(16 * there));
    });
  }
  OCTAVO_GPU_FN void store_values(const TileRuns<KV>&, int32_t* shared) const {
    constexpr int kRun = kCount / 2;
    each_unit([&](int i, int at) {
      const int dim = at % kRun / kBytes, q = at / kRun * 2 + at % kBytes;
      const int place = kBytes == 1 ? (dim / 16 * 2 + q / 2) * 16 + (dim % 16 ^ 2 * q) : (dim / 16 * 4 + q) * 16 + (dim % 16 ^ turn_of_value(q));
      store(shared + 4 * place, i);
    });
  }
  OCTAVO_GPU_FN void store(int32_t* to, int i) const {
    const Words4 unit = {{held[i].w[0], held[i].w[1], held[i].w[2], held[i].w[3]}};  // word by word: whole, it goes by scratch memory
    *reinterpret_cast<Words4*>(to) = unit;
  }
};

// What waves read of it.
template <class KV, class Units_ = KVUnits<KV>, class Rows_ = QueryRows>
struct StagedTiles {
  using Units = Units_;
  using Rows = Rows_;
  using KeyUnit = Words4;
  static constexpr bool kHasScales = KV::kHasScales;
  static constexpr int kElementBytes = sizeof(typename KV::T);
  const int32_t *staged_keys, *staged_values;

  template <int kHalves>
  struct Keys {
    const int32_t* at[kUnits];  // of even loads
    int32_t odd[kUnits];        // words from there to those of odd ones
    OCTAVO_GPU_FN void load(Words4& to, int half, int u, int load) const {
      to = *reinterpret_cast<const Words4*>(at[u] + load % 2 * odd[u] + (4 * 32 * load + 16 * half) * 4);
    }
  };
  template <int kSteps, int kHalves>
  OCTAVO_GPU_FN Keys<kHalves> keys(int first_half) const {
    Keys<kHalves> to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int row = opaque(unit_row(u)), q = unit_q(u), place = row ^ turn_of_key(q);
      to.at[u] = staged_keys + (32 * q + 16 * first_half + place) * 4;
      to.odd[u] = ((row ^ turn_of_key(q + 4)) - place) * 4;
    }
    return to;
  }

  struct Values {
    const int32_t* at[kUnits];
    OCTAVO_GPU_FN void load(typename Units::ValueUnit (&to)[kUnits], int tile, bool) const {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        to[u] = *reinterpret_cast<const typename Units::ValueUnit*>(at[u] + tile * 16 * 8 * kElementBytes);
    }
  };
  OCTAVO_GPU_FN Values values() const {
    Values to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int row = opaque(unit_row(u)), q = unit_q(u);
      const int place = kElementBytes == 1 ? 2 * (q / 2 * 16 + (row ^ 4 * (q / 2))) + q % 2 : 2 * (16 * q + (row ^ turn_of_value(q)));
      to.at[u] = staged_values + 2 * place;
    }
    return to;
  }
};

// All tiles of positions [from, to], which rows of the block see; this wave takes those in that its `count` rows see.
template <class Stage, class F, class Source>
OCTAVO_GPU_FN void take_staged(F& flash, Source& source, int32_t* keys, int32_t* values, int32_t from, int32_t to, int32_t count) {
  const typename F::Seen what = count > 0 ? flash.seen(count) : typename F::Seen{0, -1, 0, -1};
  Stage stage;
  source.start(from / kKeys, from, to);
  source.next(from / kKeys, 1);
  stage.fetch_keys(source);
  for (int32_t begin = from / kKeys * kKeys; begin <= to; begin += kKeys) {
    const bool is_mine = Stage::kIsOne || (begin + kKeys > what.from && begin <= what.to);
    const bool is_edge = Stage::kIsOne || what.is_edge(begin);  // registers: every row is looked at instead
    stage.store_keys(source, keys, flash.scales);
    sync_shared();
    stage.fetch_values(source);
    keep_order();
    typename F::Weights weights;
    if (is_mine) flash.weigh(weights, begin, is_edge, [] {});
    keep_order();
    if constexpr (Stage::kIsOne) sync_shared();
    stage.store_values(source, values);
    sync_shared();
    if (begin + kKeys <= to) {
      source.next(begin / kKeys + 1, 1);
      stage.fetch_keys(source);
    }
    keep_order();
    if (is_mine) {
      const typename F::Values staged = flash.source.values();
      typename F::ValueGroup raw[F::kBuffers];
      flash.load_values(raw[0], staged, 0);
      flash.add(weights, raw, staged, begin, is_edge, what.from, what.to);
    }
    keep_order();
    if constexpr (Stage::kIsOne) sync_shared();
  }
}

// What a wave has taken in of its rows is their result.
template <class F, class Rows>
OCTAVO_GPU_FN void finish_rows(F& flash, const Rows& rows, int32_t first_row) {
#pragma unroll
  for (int t = 0; t < static_cast<int>(sizeof(flash.out) / sizeof(flash.out[0])); ++t)
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int32_t row = opaque(first_row + 16 * t + query_row(s));
      float sum = over_row(flash.sum[t][s], [](float x, float y) { return x + y; }), before = 1.0f;
      if (row >= rows.count) continue;
      if constexpr (Rows::kHasSinks) {
        if (rows.a.sinks) before = fold_sink(flash.top[t][s], sum, rows.a.sinks[rows.head_of(row)]);
      }
      float* y = rows.result(row);
#pragma unroll
      for (int d = 0; d < F::kTiles; ++d) {
        if (16 * d >= rows.head_dim()) break;
#pragma unroll
        for (int i = 0; i < kValues; ++i)
          if (slot_of(i) == s) y[16 * d + dim_of(i)] = flash.out[t][d].v[i] * before / sum;
      }
    }
}

}  // namespace octavo::gpu

#endif
