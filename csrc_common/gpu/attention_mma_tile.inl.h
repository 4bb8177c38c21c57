// What a wave does with 16 kRows queries of one kv head and 32 positions of keys and values: products on matrix units, and an
// online softmax in float32 (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention). Scores are kept in units of log 2.
//
// A row (a token and a query head) that sees nothing of a tile is left as it was, bit for bit, so a row's result does not
// depend on the rows beside it.
#pragma once

#include "gpu/attention_mma_lanes.h"
#include "gpu/packed.h"
#include "gpu/pages.inl.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr int kKeys = 32;             // positions of a tile
constexpr float kNone = -0x1.fp+126f; // the maximum of a row that has seen nothing
constexpr float kLog2E = 0x1.715476p+0f;

OCTAVO_GPU_FN float larger(float a, float b) { return a > b ? a : b; }

// Query rows of one sequence and kv head: row r is token r / group and query head r % group.
struct QueryRows {
  const float* q;
  float* y;
  int64_t ldq, ldy;
  const float* alibi;  // of the kv head's first query head, or null
  int32_t group, head_dim, count, first_position, window;
  OCTAVO_GPU_FN int32_t position(int32_t row) const { return first_position + row / group; }
  OCTAVO_GPU_FN int32_t low(int32_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
  OCTAVO_GPU_FN const float* query(int32_t row) const { return q + row / group * ldq + static_cast<int64_t>(row % group) * head_dim; }
  OCTAVO_GPU_FN float* result(int32_t row) const { return y + row / group * ldy + static_cast<int64_t>(row % group) * head_dim; }
};

OCTAVO_GPU_FN const OperandBF16& widened(const OperandBF16& x) { return x; }
OCTAVO_GPU_FN OperandBF16 widened(const OperandI8& x) {
  OperandBF16 y;
#pragma unroll
  for (int u = 0; u < kUnits; ++u)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t pair = x.w[u][i / 2] >> (i % 2 * 16);
      y.w[u][i] = pack_small(static_cast<float>(static_cast<int8_t>(pair)), static_cast<float>(static_cast<int8_t>(pair >> 8)));
    }
  return y;
}
template <class T>
struct RawOperand {
  using Type = OperandBF16;
};
template <>
struct RawOperand<int8_t> {
  using Type = OperandI8;
};

// kSteps: of 32 dimensions, as many as hold head_dim.
template <class KV, int kSteps, int kRows>
struct Flash {
  using T = typename KV::T;
  using Raw = typename RawOperand<T>::Type;
  static constexpr bool kEarly = kRows == 1 && kUnits * kSteps <= 4;  // values are asked for before the keys are there

  static constexpr int kTogether = kUnits > 2 ? 2 : 4;                // operands that are asked for at a time

  const QueryRows& rows;
  HeadPages<KV> pages;
  int32_t first_row;
  float scale, softcap;
  OperandBF16 query[kRows][kSteps];
  int32_t low[kRows][kSlots], high[kRows][kSlots];
  float slope[kRows][kSlots], top[kRows][kSlots], sum[kRows][kSlots];  // sum: of this lane's keys
  SumsF32 out[kRows][2 * kSteps];

  OCTAVO_GPU_FN Flash(const QueryRows& rows_, const HeadPages<KV>& pages_, int32_t first, const PagedAttentionArgs& a)
      : rows(rows_), pages(pages_), first_row(first), scale(a.softcap != 0.0f ? a.scale : a.scale * kLog2E), softcap(a.softcap) {
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int32_t row = first_row + 16 * t + query_row(s);
        const bool is_real = row < rows.count;
        high[t][s] = is_real ? rows.position(row) : -1;
        low[t][s] = is_real ? rows.low(high[t][s]) : 0;
        slope[t][s] = is_real && rows.alibi ? rows.alibi[row % rows.group] * kLog2E : 0.0f;
      }
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) load_query(query[t][step], t, step);
    clear();
  }

  OCTAVO_GPU_FN void clear() {
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) top[t][s] = kNone, sum[t][s] = 0.0f;
#pragma unroll
      for (int d = 0; d < 2 * kSteps; ++d) out[t][d] = SumsF32{};
    }
  }

  OCTAVO_GPU_FN void load_query(OperandBF16& to, int t, int step) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int32_t row = first_row + 16 * t + unit_row(u), dim = 32 * step + kUnit * unit_q(u);
#pragma unroll
      for (int i = 0; i < 4; ++i) to.w[u][i] = 0;
      if (row >= rows.count || dim >= rows.head_dim) continue;
      const float* q = rows.query(row) + dim;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to.w[u][i] = static_cast<int32_t>(vec::bf16_of(q[2 * i]) | static_cast<uint32_t>(vec::bf16_of(q[2 * i + 1])) << 16);
    }
  }

  // Keys of 16 positions of the tile at `at` (its position 0), 32 dimensions. What is beyond head_dim, a multiple of 16, is any
  // key's: queries have zeros there.
  OCTAVO_GPU_FN void load_keys(Raw& to, const T* at, int half, int step) const {
    const int32_t left = rows.head_dim - 32 * step, most = left >= 32 ? 3 : 1;
    const T* from = left > 0 ? at + 32 * step : at;
    load_operand(to, [&](int row, int q) { return from + token_of_row(half, row) * rows.head_dim + kUnit * (q & most); });
  }
  // Values of 16 dimensions, 32 positions, of the tile at `at` (its position 0, dimension 0).
  OCTAVO_GPU_FN void load_values(Raw& to, const T* at, int tile) const {
    const int32_t apart = static_cast<int32_t>(pages.block_tokens);
    const T* from = 16 * tile < rows.head_dim ? at + 16 * tile * apart : at;
    load_operand(to, [&](int row, int q) { return from + row * apart + kUnit * q; });
  }

  // Weights of positions that nobody sees are 0, but what lies there may be no number.
  OCTAVO_GPU_FN void blank(OperandBF16& values, int32_t begin, int32_t from, int32_t to) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t j = begin + kUnit * unit_q(u) + 2 * i;
        const uint32_t mask = (j >= from && j <= to ? 0xFFFFu : 0u) | (j + 1 >= from && j + 1 <= to ? 0xFFFF0000u : 0u);
        values.w[u][i] &= static_cast<int32_t>(mask);
      }
  }
  OCTAVO_GPU_FN void blank(OperandI8&, int32_t, int32_t, int32_t) const {}

  // Takes positions [begin, begin + 32) in. kEdge: some row does not see all of them; [from, to]: what any row sees.
  template <bool kEdge>
  OCTAVO_GPU_FN void take(int32_t begin, int32_t from, int32_t to) {
    const T* keys = pages.key(begin);
    const T* values = pages.value(begin);
    Raw early[kEarly ? 2 * kSteps : 1];
    if constexpr (kEarly) {
#pragma unroll
      for (int d = 0; d < 2 * kSteps; ++d) load_values(early[d], values, d);
    }
    SumsF32 s[kRows][2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (kUnits * kSteps > 4 && step % kTogether == 0) keep_order();
        Raw raw;
        load_keys(raw, keys, half, step);
        const OperandBF16 key = widened(raw);
#pragma unroll
        for (int t = 0; t < kRows; ++t) mma_query(s[t][half], query[t][step], key);
      }
    float key_scale[kScoreUnits][8], value_scale[kScoreUnits][8];
    if constexpr (KV::kHasScales) {
#pragma unroll
      for (int u = 0; u < kScoreUnits; ++u)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          key_scale[u][j] = pages.key_scale(begin)[kUnit * score_q(u) + j];
          value_scale[u][j] = pages.value_scale(begin)[kUnit * score_q(u) + j];
        }
    }
    OperandBF16 weights[kRows];
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      float w[kSlots][kScoreUnits][8], shrink[kSlots];
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        const auto each = [&](auto&& change) {
#pragma unroll
          for (int u = 0; u < kScoreUnits; ++u)
#pragma unroll
            for (int j = 0; j < 8; ++j) change(w[slot][u][j], u, j, begin + kUnit * score_q(u) + j);
        };
        each([&](float& x, int u, int j, int32_t) {
          x = score_at(s[t], slot, u, j);
          if constexpr (KV::kHasScales) x = x * key_scale[u][j];
          x = x * scale;
        });
        if (softcap != 0.0f) each([&](float& x, int, int, int32_t) { x = softcap * kLog2E * vec::tanh<V>(x / softcap); });
        if (rows.alibi) {
          each([&](float& x, int, int, int32_t at) { x = x - slope[t][slot] * static_cast<float>(high[t][slot] - at); });
        }
        float most = top[t][slot];
        each([&](float& x, int, int, int32_t at) {
          if constexpr (kEdge) x = at >= low[t][slot] && at <= high[t][slot] ? x : kNone;
          most = larger(most, x);
        });
        most = over_row(most, larger);
        shrink[slot] = exp2_fast(top[t][slot] - most);
        top[t][slot] = most;
        float added = 0.0f;
        each([&](float& x, int u, int j, int32_t) {
          const bool is_seen = !kEdge || x != kNone;
          x = is_seen ? exp2_fast(x - most) : 0.0f;
          added = added + x;
          if constexpr (KV::kHasScales) x = is_seen ? x * value_scale[u][j] : 0.0f;
        });
        sum[t][slot] = V::fma(sum[t][slot], shrink[slot], added);
      }
      weights_operand(weights[t], w);
#pragma unroll
      for (int d = 0; d < 2 * kSteps; ++d)
#pragma unroll
        for (int i = 0; i < kValues; ++i) out[t][d].v[i] = out[t][d].v[i] * shrink[slot_of(i)];
    }
#pragma unroll
    for (int d = 0; d < 2 * kSteps; ++d) {
      if (kUnits * kSteps > 4 && d % kTogether == 0) keep_order();
      Raw raw;
      if constexpr (kEarly) {
        raw = early[d];
      } else {
        load_values(raw, values, d);
      }
      if constexpr (kEdge) blank(raw, begin, from, to);
      const OperandBF16 value = widened(raw);
#pragma unroll
      for (int t = 0; t < kRows; ++t) mma_query(out[t][d], weights[t], value);
    }
  }

  // Every tile'th tile of [from, to], the positions that any of `count` rows from first_row on sees; rows at the border of what
  // all see are looked at one by one.
  OCTAVO_GPU_FN void take_all(int32_t first_tile, int32_t last_tile, int32_t apart, int32_t count) {
    const int32_t last_row = first_row + count - 1;
    const int32_t first = rows.position(first_row), last = rows.position(last_row), from = rows.low(first), all_from = rows.low(last);
    for (int32_t tile = first_tile; tile <= last_tile; tile += apart) {
      const int32_t begin = tile * kKeys;
      if (begin >= all_from && begin + kKeys - 1 <= first && count >= 1) {
        take<false>(begin, from, last);
      } else {
        take<true>(begin, from, last);
      }
    }
  }
};

}  // namespace octavo::gpu

#endif
