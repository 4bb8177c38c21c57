// What a wave does with 16 kRows queries of one kv head and 32 positions of keys and values: products on matrix units, and an
// online softmax in float32 (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention). Scores are kept in units of log 2.
//
// A row (a token and a query head) that sees nothing of a tile is left as it was, bit for bit, so a row's result does not
// depend on the rows beside it.
#pragma once

#include "gpu/attention_mma_pages.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kKeys = 32;             // positions of a tile: two runs
constexpr float kNone = -0x1.fp+126f; // the maximum of a row that has seen nothing

OCTAVO_GPU_FN float larger(float a, float b) { return a > b ? a : b; }

// Source: where keys and values come from (PageTiles). kSteps: of 32 dimensions, as many as hold head_dim. kIsShared: queries lie in
// shared memory (else in registers).
template <class Source, int kSteps, int kRows, bool kIsShared>
struct Flash {
  using Units = typename Source::Units;
  using Rows = typename Source::Rows;
  using Operand = typename Units::Operand;
  static constexpr bool kHasScales = Source::kHasScales;
  static constexpr int kTiles = 2 * kSteps;                            // of 16 dimensions
  static constexpr int kFewestTiles = kFewestTilesOf<kSteps>;
  static constexpr int kParts = Units::kParts, kKeyParts = kKeyPartsOf<Units>;
  // Loads that are asked for at a time, while those before them are worked on: of keys (for all 32), and tiles of values.
  static constexpr bool kIsNarrow = kKeyParts == 1;
  static constexpr int kKeyLoads = kSteps / Units::kStepsOfLoad, kKeysTogether = kIsNarrow && kUnits == 1 && kSteps <= 4 ? 2 : 1;
  static constexpr int kValuesTogether = !kIsNarrow ? 1 : kUnits == 1 && kSteps <= 4 ? 4 : kUnits == 2 && kSteps <= 4 ? 2 : 1;
  static constexpr int kMostInHalves = kUnits == 1 || (kUnits == 2 && Source::kElementBytes == 1) ? 6 : 4;
  static constexpr int kHalves = kIsNarrow && kSteps <= kMostInHalves ? 2 : 1;  // of the keys of a tile
  static constexpr bool kIsTight = !kIsNarrow && kQueryIsA;  // NVIDIA
  static constexpr int kKeyUnroll = kIsTight || (kUnits == 2 && kIsShared && kSteps > 4) ? 1 : kKeyLoads;  // ptxas would begin all at once
  static constexpr int kBuffers = kUnits > 2 || kIsTight || kSteps > (kUnits == 2 ? 4 : 6) ? 1 : 2;  // where there are registers for that
  static constexpr int kKeyGroups = (kKeyLoads + kKeysTogether - 1) / kKeysTogether, kValueGroups = kTiles / kValuesTogether;
  static constexpr int kScores = kKeyParts > 1 ? 2 : 1;  // sums of the products of first parts, and of those of lower ones

  const Rows& rows;
  Source source;
  int32_t first_row;
  const int32_t* staged;  // queries in shared memory
  float* scales;          // 32 keys', then their values', in shared memory
  float scale, softcap, cap;
  Operand query[kIsShared ? 1 : kRows][kIsShared ? 1 : kSteps][kParts];
  int32_t position[kRows][kSlots];                         // -1: there is no such row
  float top[kRows][kSlots], sum[kRows][kSlots];            // sum: of this lane's keys
  SumsF32 out[kRows][kTiles];

  OCTAVO_GPU_FN Flash(const Rows& rows_, const Source& source_, int32_t first, const int32_t* staged_, float* scales_)
      : rows(rows_), source(source_), first_row(first), staged(staged_), scales(scales_),
        scale(uniform(rows.softcap() != 0.0f ? rows.a.scale : rows.a.scale * kLog2E)), softcap(rows.softcap()),
        cap(uniform(rows.softcap() * kLog2E)) {
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int32_t row = first_row + 16 * t + query_row(s);
        position[t][s] = row < rows.count ? rows.position(row) : -1;
      }
    if constexpr (!kIsShared) {
#pragma unroll
      for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int step = 0; step < kSteps; ++step) load_query<Units>(query[t][step], rows, first_row + 16 * t, step);
    }
    clear();
  }

  OCTAVO_GPU_FN void clear() {
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) top[t][s] = kNone, sum[t][s] = 0.0f;
#pragma unroll
      for (int d = 0; d < kTiles; ++d) out[t][d] = SumsF32{};
    }
  }

  // Nor does ptxas, where a load takes many registers.
  static OCTAVO_GPU_FN void keep_loads() {
    keep_order();
    if constexpr (!kIsNarrow) hold_loads();
  }

  using Values = typename Source::Values;
  using ValueGroup = typename Units::RawValues[kValuesTogether];
  // Values of some tiles of 16 dimensions; beyond head_dim, of the first one once more.
  OCTAVO_GPU_FN void load_values(ValueGroup& to, const Values& from, int group) const {
#pragma unroll
    for (int i = 0; i < kValuesTogether; ++i) {
      const int tile = group * kValuesTogether + i;
      const bool is_there = tile < kFewestTiles || 16 * tile < rows.head_dim();
      from.load(to[i].unit, tile, is_there);
    }
  }

  using KeyGroup = typename Source::KeyUnit[kKeysTogether][kHalves][kUnits];
  // Some 64 bytes of keys. What is beyond head_dim, a multiple of 16, is any of the same key's: queries have zeros there.
  template <class Keys>
  OCTAVO_GPU_FN void load_keys(KeyGroup& to, const Keys& from, int group) const {
#pragma unroll
    for (int i = 0; i < kKeysTogether; ++i) {
      const int load = group * kKeysTogether + i;
      if (load >= kKeyLoads) break;
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
#pragma unroll
        for (int u = 0; u < kUnits; ++u) from.load(to[i][half][u], half, u, load);
    }
  }
  using Scores = SumsF32[kScores][kRows][2];
  OCTAVO_GPU_FN void multiply_keys(Scores& s, KeyGroup& raw, int first_half, int group) const {
#pragma unroll
    for (int i = 0; i < kKeysTogether; ++i) {
      if (group * kKeysTogether + i >= kKeyLoads) break;
#pragma unroll
      for (int k = 0; k < Units::kStepsOfLoad; ++k) {
        if (kUnits > 2 && k > 0) keep_order();
        const int step = (group * kKeysTogether + i) * Units::kStepsOfLoad + k;
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
#pragma unroll
          for (int key_part = 0; key_part < kKeyParts; ++key_part) {
            const Operand key = Units::key(raw[i][half], k);
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
              for (int part = 0; part < kParts; ++part) {
                if (kKeyParts > 1 && part + key_part >= kParts) continue;  // below what float32 keeps
                SumsF32& to = s[kScores > 1 && part + key_part > 0 ? 1 : 0][t][first_half + half];
                if constexpr (kIsShared) {
                  mma_query(to, staged_query<Operand>(staged, (t * kParts + part) * kSteps + step), key);
                } else {
                  mma_query(to, query[t][step][part], key);
                }
              }
          }
        }
      }
    }
  }
  // Scores of all rows.
  OCTAVO_GPU_FN void score(Scores& s) const {
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += kHalves) {
      const auto from = source.template keys<kSteps, kHalves>(first_half);
      KeyGroup raw[kBuffers];
      load_keys(raw[0], from, 0);
#pragma unroll kKeyUnroll
      for (int group = 0; group < kKeyGroups; ++group) {
        const int ahead = group + kBuffers - 1;
        if (ahead > 0 && ahead < kKeyGroups) load_keys(raw[ahead % kBuffers], from, ahead);
        keep_loads();
        multiply_keys(s, raw[group % kBuffers], first_half, group);
      }
    }
    if constexpr (kScores > 1) {
#pragma unroll
      for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < kValues; ++i) s[0][t][half].v[i] = s[0][t][half].v[i] + s[1][t][half].v[i];
    }
  }

  // The weights of 32 positions from `begin_at` on, as what was summed before shrinks. is_edge: some row does not see all of them.
  // `ahead()` runs between the products and the weights.
  using Weights = Operand[kRows][kParts];
  template <class Ahead>
  OCTAVO_GPU_FN void weigh(Weights& weights, int32_t begin_at, bool is_edge, Ahead&& ahead) {
    const int32_t begin = opaque_uniform(begin_at);  // positions of lanes are computed when they are asked for
    Scores s;
#pragma unroll
    for (int i = 0; i < kScores; ++i)
#pragma unroll
      for (int t = 0; t < kRows; ++t) begin_sums(s[i][t][0]), begin_sums(s[i][t][1]);
    score(s);
    ahead();
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      float w[kSlots][kScoreUnits][8], shrink[kSlots];
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        int q[kScoreUnits];
#pragma unroll
        for (int u = 0; u < kScoreUnits; ++u) q[u] = opaque(score_q(u));
        const auto each = [&](auto&& change) {
#pragma unroll
          for (int u = 0; u < kScoreUnits; ++u)
#pragma unroll
            for (int j = 0; j < 8; ++j) change(w[slot][u][j], u, j, begin + kUnit * q[u] + j);
        };
        each([&](float& x, int u, int j, int32_t) {
          x = score_at(s[0][t], slot, u, j);
          if constexpr (kHasScales) x = x * scales[kUnit * q[u] + j];
          x = x * scale;
        });
        if (softcap != 0.0f) {
          each([&](float& x, int, int, int32_t) {
            keep_order();  // one after the other: all of them at a time need more registers than there are
            x = cap * vec::tanh<V>(x / softcap);
          });
        }
        if (rows.a.alibi) {
          const int32_t row = opaque(first_row + 16 * t + query_row(slot));
          const float slope = rows.a.alibi[rows.head_of(row)] * kLog2E;
          each([&](float& x, int, int, int32_t at) { x = x - slope * static_cast<float>(rows.distance(position[t][slot], at)); });
        }
        if (is_edge) {
          const int32_t mine = opaque(position[t][slot]), low = rows.low(mine);
          const int32_t high = rows.high(kIsNarrow ? mine : position[t][slot]);  // each as ptxas spills nothing
          each([&](float& x, int, int, int32_t at) { x = at >= low && at <= high ? x : kNone; });
        }
        float most = top[t][slot];
        each([&](float& x, int, int, int32_t) { most = larger(most, x); });
        most = over_row(most, larger);
        shrink[slot] = exp2_fast(top[t][slot] - most);
        top[t][slot] = most;
        float of_value[kScoreUnits][8];
        if constexpr (kHasScales) {
          each([&](float&, int u, int j, int32_t) { of_value[u][j] = scales[kKeys + kUnit * q[u] + j]; });
          keep_order();  // else each is read behind a branch of its own
        }
        float added = 0.0f;
        each([&](float& x, int u, int j, int32_t) {
          const bool is_seen = x != kNone;
          x = is_seen ? exp2_fast(x - most) : 0.0f;
          added = added + x;
          if constexpr (kHasScales) x = is_seen ? x * of_value[u][j] : 0.0f;
        });
        sum[t][slot] = V::fma(sum[t][slot], shrink[slot], added);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) weights_operand<Units>(weights[t][part], w, part);
#pragma unroll
      for (int d = 0; d < kTiles; ++d)
#pragma unroll
        for (int i = 0; i < kValues; ++i) out[t][d].v[i] = out[t][d].v[i] * shrink[slot_of(i)];
    }
  }

  // Adds weighted values; `raw[0]` holds the first ones. [from, to]: positions that any row sees.
  OCTAVO_GPU_FN void add(Weights& weights, ValueGroup (&raw)[kBuffers], const Values& values, int32_t begin, bool is_edge, int32_t from,
                         int32_t to) {
#pragma unroll
    for (int group = 0; group < kValueGroups; ++group) {
      const int ahead = group + kBuffers - 1;
      if (ahead > 0 && ahead < kValueGroups) load_values(raw[ahead % kBuffers], values, ahead);
      keep_loads();
      if (Units::kBlanks && opaque_uniform(is_edge)) {
#pragma unroll
        for (int i = 0; i < kValuesTogether; ++i) Units::blank(raw[group % kBuffers][i], begin, from, to);
      }
#pragma unroll
      for (int i = 0; i < kValuesTogether; ++i) multiply_values(weights, raw[group % kBuffers][i], group * kValuesTogether + i);
    }
  }
  OCTAVO_GPU_FN void multiply_values(Weights& weights, typename Units::RawValues& raw, int tile) {
    if constexpr (kKeyParts == 1) {
      const Operand value = Units::value(raw);
#pragma unroll
      for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int part = 0; part < kParts; ++part) mma_query(out[t][tile], weights[t][part], value);
    } else {
      SumsF32 sums[kRows];  // of this tile alone: a unit that cuts sums short cuts less of them
#pragma unroll
      for (int t = 0; t < kRows; ++t) begin_sums(sums[t]);
#pragma unroll
      for (int value_part = 0; value_part < kKeyParts; ++value_part) {
        const Operand value = Units::value(raw);
#pragma unroll
        for (int t = 0; t < kRows; ++t)
#pragma unroll
          for (int part = 0; part + value_part < kParts; ++part) mma_query(sums[t], weights[t][part], value);
      }
#pragma unroll
      for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int i = 0; i < kValues; ++i) out[t][tile].v[i] = out[t][tile].v[i] + sums[t].v[i];
    }
#pragma unroll
    for (int t = 0; t < kRows; ++t) settle(out[t][tile]);
  }

  // What the rows first_row .. last see: [from, to] any of them, [all_from, all_to] all of them.
  struct Seen {
    int32_t from, to, all_from, all_to;
    OCTAVO_GPU_FN bool is_edge(int32_t begin) const { return begin < all_from || begin + kKeys - 1 > all_to; }
  };
  OCTAVO_GPU_FN Seen seen(int32_t count) const {
    const int32_t first = rows.position(first_row), last = rows.position(first_row + count - 1);
    return {rows.low(first), rows.high(last), rows.low(last), rows.high(first)};
  }

  // Every apart'th tile of [first_tile, last_tile]; rows at the border of what all see are looked at one by one.
  OCTAVO_GPU_FN void take_all(int32_t first_tile, int32_t last_tile, int32_t apart, int32_t count) {
    if (first_tile > last_tile) return;
    const Seen what = seen(count);
    source.start(first_tile, what.from, what.to);
    for (int32_t tile = first_tile; tile <= last_tile; tile += apart) {
      source.next(tile, apart);
      if constexpr (kIsShared) keep_order();
      if constexpr (kHasScales) source.fetch_scales(scales);
      const int32_t begin = tile * kKeys;
      const bool is_edge = what.is_edge(begin);
      Weights weights;
      Values values;
      ValueGroup raw[kBuffers];
      weigh(weights, begin, is_edge, [&] {
        values = source.values();
        load_values(raw[0], values, 0);
        keep_order();
        if constexpr (kHasScales) sync_wave();
      });
      add(weights, raw, values, begin, is_edge, what.from, what.to);
    }
  }
};

}  // namespace octavo::gpu

#endif
