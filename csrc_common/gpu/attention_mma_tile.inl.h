// What a wave does with 16 kRows queries of one kv head and 32 positions of keys and values: products on matrix units, and an
// online softmax in float32 (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention). Scores are kept in units of log 2.
//
// A row (a token and a query head) that sees nothing of a tile is left as it was, bit for bit, so a row's result does not
// depend on the rows beside it.
#pragma once

#include "gpu/attention_mma_rows.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kKeys = 32;             // positions of a tile: two runs
constexpr float kNone = -0x1.fp+126f; // the maximum of a row that has seen nothing

OCTAVO_GPU_FN float larger(float a, float b) { return a > b ? a : b; }

// kSteps: of 32 dimensions, as many as hold head_dim. kIsShared: queries lie in shared memory (else in registers).
template <class KV, int kSteps, int kRows, bool kIsShared>
struct Flash {
  using T = typename KV::T;
  using Units = KVUnits<KV>;
  using Operand = typename Units::Operand;
  static constexpr int kTiles = 2 * kSteps;                                // of 16 dimensions
  static constexpr int kFewestTiles = kSteps <= 2 ? 1 : kSteps <= 4 ? 4 : kTiles - 4;  // that head_dim fills: smaller ones have kernels of their own
  static constexpr int kParts = Units::kParts;
  // Loads that are asked for at a time, while those before them are worked on: of keys (for all 32), and tiles of values.
  static constexpr int kKeyLoads = kSteps / Units::kStepsOfLoad, kKeysTogether = kUnits == 1 && kSteps <= 4 ? 2 : 1;
  static constexpr int kValuesTogether = kUnits == 1 && kSteps <= 4 ? 4 : kUnits == 2 && kSteps <= 4 ? 2 : 1;
  static constexpr int kHalves = kSteps > (kUnits == 1 || (kUnits == 2 && sizeof(T) == 1) ? 6 : 4) ? 1 : 2;  // of the keys of a tile
  static constexpr int kKeyUnroll = kUnits == 2 && kIsShared && kSteps > 4 ? 1 : kKeyLoads;  // ptxas would begin all loads at once
  static constexpr int kBuffers = kUnits > 2 || kSteps > (kUnits == 2 ? 4 : 6) ? 1 : 2;  // where there are registers for that
  static constexpr int kKeyGroups = (kKeyLoads + kKeysTogether - 1) / kKeysTogether, kValueGroups = kTiles / kValuesTogether;

  const QueryRows& rows;
  RunPages<KV> pages;
  int32_t first_row;
  const int32_t* staged;  // queries in shared memory
  float* scales;          // 64 floats of the wave in shared memory
  float scale, softcap, cap;
  Operand query[kIsShared ? 1 : kRows][kIsShared ? 1 : kSteps][kParts];
  int32_t high[kRows][kSlots];                             // the last position that a row sees; -1: there is no such row
  float top[kRows][kSlots], sum[kRows][kSlots];            // sum: of this lane's keys
  SumsF32 out[kRows][kTiles];

  OCTAVO_GPU_FN Flash(const QueryRows& rows_, const RunPages<KV>& pages_, int32_t first, const int32_t* staged_, float* scales_,
                      const PagedAttentionArgs& a)
      : rows(rows_), pages(pages_), first_row(first), staged(staged_), scales(scales_),
        scale(uniform(a.softcap != 0.0f ? a.scale : a.scale * kLog2E)), softcap(a.softcap), cap(uniform(a.softcap * kLog2E)) {
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int32_t row = first_row + 16 * t + query_row(s);
        high[t][s] = row < rows.count ? rows.position(row) : -1;
      }
    if constexpr (!kIsShared) {
#pragma unroll
      for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int step = 0; step < kSteps; ++step) load_query<KV>(query[t][step], rows, first_row + 16 * t, step);
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

  // Values of some tiles of 16 dimensions; beyond head_dim, of the first one once more.
  using ValueGroup = typename Units::RawValues[kValuesTogether];
  OCTAVO_GPU_FN void load_values(ValueGroup& to, const uint8_t* const (&at)[kUnits], int group) const {
#pragma unroll
    for (int i = 0; i < kValuesTogether; ++i) {
      const int tile = group * kValuesTogether + i;
      const uint32_t offset = tile < kFewestTiles || 16 * tile < rows.head_dim() ? 16u * tile * kTokenRun * sizeof(T) : 0;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) to[i].unit[u] = *reinterpret_cast<const typename Units::ValueUnit*>(at[u] + offset);
    }
  }

  using KeyGroup = Words4[kKeysTogether][kHalves][kUnits];
  // Some 64 bytes of keys. What is beyond head_dim, a multiple of 16, is any of the same key's: queries have zeros there.
  OCTAVO_GPU_FN void load_keys(KeyGroup& to, const uint8_t* const (&at)[kHalves][kUnits], int32_t row_bytes, int group) const {
#pragma unroll
    for (int i = 0; i < kKeysTogether; ++i) {
      const int load = group * kKeysTogether + i;
      if (load >= kKeyLoads) break;
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          const bool is_there = 64 * load + 64 <= kFewestTiles * 16 * static_cast<int>(sizeof(T)) ||
                                16 * opaque(unit_q(u)) < row_bytes - 64 * load;
          const int32_t instead = load > 0 ? 64 * (load - 1) : -16 * unit_q(u);
          to[i][half][u] = *reinterpret_cast<const Words4*>(at[half][u] + (is_there ? 64 * load : instead));
        }
    }
  }
  OCTAVO_GPU_FN void multiply_keys(SumsF32 (&s)[kRows][2], const KeyGroup& raw, int first_half, int group) const {
#pragma unroll
    for (int i = 0; i < kKeysTogether; ++i) {
      if (group * kKeysTogether + i >= kKeyLoads) break;
#pragma unroll
      for (int k = 0; k < Units::kStepsOfLoad; ++k) {
        if (kUnits > 2 && k > 0) keep_order();
        const int step = (group * kKeysTogether + i) * Units::kStepsOfLoad + k;
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const Operand key = Units::key(raw[i][half], k);
#pragma unroll
          for (int t = 0; t < kRows; ++t)
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
              if constexpr (kIsShared) {
                mma_query(s[t][first_half + half], staged_query<Operand>(staged, (t * kParts + part) * kSteps + step), key);
              } else {
                mma_query(s[t][first_half + half], query[t][step][part], key);
              }
            }
        }
      }
    }
  }
  // Scores of all rows.
  OCTAVO_GPU_FN void score(SumsF32 (&s)[kRows][2], const Run& first, const Run& second) const {
#pragma unroll
    for (int first_half = 0; first_half < 2; first_half += kHalves) {
      const int32_t row_bytes = opaque_uniform(pages.row_bytes);
      const uint8_t* at[kHalves][kUnits];
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          const int token = token_of_row(first_half + half, opaque(unit_row(u)));
          at[half][u] = (token < kTokenRun ? first.keys : second.keys) + static_cast<uint32_t>(token % kTokenRun * row_bytes + 16 * opaque(unit_q(u)));
        }
      KeyGroup raw[kBuffers];
      load_keys(raw[0], at, row_bytes, 0);
#pragma unroll kKeyUnroll
      for (int group = 0; group < kKeyGroups; ++group) {
        const int ahead = group + kBuffers - 1;
        if (ahead > 0 && ahead < kKeyGroups) load_keys(raw[ahead % kBuffers], at, row_bytes, ahead);
        keep_order();
        multiply_keys(s, raw[group % kBuffers], first_half, group);
      }
    }
  }

  // Takes 32 positions from `begin_at` on in. is_edge: some row does not see all of them; [from, to]: what any row sees.
  OCTAVO_GPU_FN void take(int32_t begin_at, const Run& first, const Run& second, bool is_edge, int32_t from, int32_t to) {
    const int32_t begin = opaque_uniform(begin_at);  // positions of lanes are computed when they are asked for
    if constexpr (kIsShared) keep_order();
    if constexpr (KV::kHasScales) pages.fetch_scales(scales, first, second);
    SumsF32 s[kRows][2];
#pragma unroll
    for (int t = 0; t < kRows; ++t) begin_sums(s[t][0]), begin_sums(s[t][1]);
    score(s, first, second);
    const uint8_t* at[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int q = opaque(unit_q(u));
      at[u] = (q < 2 ? first.keys : second.keys) + pages.values_from +
              static_cast<uint32_t>(opaque(unit_row(u)) * kTokenRun + q % 2 * kUnit) * static_cast<uint32_t>(sizeof(T));
    }
    ValueGroup raw[kBuffers];
    load_values(raw[0], at, 0);
    keep_order();
    if constexpr (KV::kHasScales) sync_wave();
    Operand weights[kRows][kParts];
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
          x = score_at(s[t], slot, u, j);
          if constexpr (KV::kHasScales) x = x * scales[kUnit * q[u] + j];
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
          each([&](float& x, int, int, int32_t at) { x = x - slope * static_cast<float>(high[t][slot] - at); });
        }
        if (is_edge) {
          const int32_t low = rows.low(opaque(high[t][slot]));
          each([&](float& x, int, int, int32_t at) { x = at >= low && at <= high[t][slot] ? x : kNone; });
        }
        float most = top[t][slot];
        each([&](float& x, int, int, int32_t) { most = larger(most, x); });
        most = over_row(most, larger);
        shrink[slot] = exp2_fast(top[t][slot] - most);
        top[t][slot] = most;
        float of_value[kScoreUnits][8];
        if constexpr (KV::kHasScales) {
          each([&](float&, int u, int j, int32_t) { of_value[u][j] = scales[kKeys + kUnit * q[u] + j]; });
          keep_order();  // else each is read behind a branch of its own
        }
        float added = 0.0f;
        each([&](float& x, int u, int j, int32_t) {
          const bool is_seen = x != kNone;
          x = is_seen ? exp2_fast(x - most) : 0.0f;
          added = added + x;
          if constexpr (KV::kHasScales) x = is_seen ? x * of_value[u][j] : 0.0f;
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
#pragma unroll
    for (int group = 0; group < kValueGroups; ++group) {
      const int ahead = group + kBuffers - 1;
      if (ahead > 0 && ahead < kValueGroups) load_values(raw[ahead % kBuffers], at, ahead);
      keep_order();
      if (Units::kBlanks && opaque_uniform(is_edge)) {
#pragma unroll
        for (int i = 0; i < kValuesTogether; ++i) Units::blank(raw[group % kBuffers][i], begin, from, to);
      }
#pragma unroll
      for (int i = 0; i < kValuesTogether; ++i) {
        const Operand value = Units::value(raw[group % kBuffers][i]);
#pragma unroll
        for (int t = 0; t < kRows; ++t)
#pragma unroll
          for (int part = 0; part < kParts; ++part) mma_query(out[t][group * kValuesTogether + i], weights[t][part], value);
#pragma unroll
        for (int t = 0; t < kRows; ++t) settle(out[t][group * kValuesTogether + i]);
      }
    }
  }

  // Every tile'th tile of [first_tile, last_tile]; rows at the border of what all see are looked at one by one.
  OCTAVO_GPU_FN void take_all(int32_t first_tile, int32_t last_tile, int32_t apart, int32_t count) {
    if (first_tile > last_tile) return;
    const int32_t last_row = first_row + count - 1;
    const int32_t first = rows.position(first_row), last = rows.position(last_row), from = rows.low(first), all_from = rows.low(last);
    const int32_t last_run = last / kTokenRun;
    const auto run = [&](int32_t tile, int half) { return 2 * tile + half < last_run ? 2 * tile + half : last_run; };
    int32_t page = pages.page_of(run(first_tile, 0)), other_page = pages.page_of(run(first_tile, 1));
    for (int32_t tile = first_tile; tile <= last_tile; tile += apart) {
      const int32_t next = pages.page_of(run(tile + apart, 0)), other_next = pages.page_of(run(tile + apart, 1));  // ahead of their use
      const Run one = pages.run(run(tile, 0), page), other = pages.run(run(tile, 1), other_page);
      const int32_t begin = tile * kKeys;
      take(begin, one, other, begin < all_from || begin + kKeys - 1 > first, from, last);
      page = next;
      other_page = other_next;
    }
  }
};

}  // namespace octavo::gpu

#endif
