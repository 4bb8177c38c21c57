// What attention on matrix units reads: query rows of one sequence and kv head, and runs of 16 keys and values in pages.
#pragma once

#include "gpu/attention_mma_units.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr float kLog2E = 0x1.715476p+0f;

struct alignas(16) Floats4 {
  float v[4];
};

// Row r is token r / group and query head r % group.
struct QueryRows {
  const PagedAttentionArgs& a;
  int32_t token, head;  // the first ones
  int32_t group, count, first_position;
  OCTAVO_GPU_FN int32_t head_dim() const { return static_cast<int32_t>(a.head_dim); }
  OCTAVO_GPU_FN int32_t position(int32_t row) const { return first_position + row / group; }
  OCTAVO_GPU_FN int32_t low(int32_t position) const {
    const auto window = static_cast<int32_t>(a.window);
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  OCTAVO_GPU_FN int32_t head_of(int32_t row) const { return head + row % group; }
  OCTAVO_GPU_FN const float* query(int32_t row) const { return a.q + (token + row / group) * a.ldq + head_of(row) * a.head_dim; }
  OCTAVO_GPU_FN float* result(int32_t row) const { return a.y + (token + row / group) * a.ldy + head_of(row) * a.head_dim; }
};

// Unit u of a lane of queries of 16 rows: rows that are not there, and dimensions beyond head_dim, are 0.
template <class KV>
OCTAVO_GPU_FN void load_query(typename KVUnits<KV>::Operand (&to)[KVUnits<KV>::kParts], const QueryRows& rows, int32_t first, int step) {
  using Units = KVUnits<KV>;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const int32_t row = first + unit_row(u);
    const int32_t dim = Units::kStepsOfLoad == 1 ? 32 * step + kUnit * unit_q(u) : step / 2 * 64 + 16 * unit_q(u) + step % 2 * kUnit;
    Floats4 x[2] = {};
    if (row < rows.count && dim < rows.head_dim()) {
      x[0] = reinterpret_cast<const Floats4*>(rows.query(row) + dim)[0];
      x[1] = reinterpret_cast<const Floats4*>(rows.query(row) + dim)[1];
    }
#pragma unroll
    for (int part = 0; part < Units::kParts; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[part].w[u][i] = Units::pack(x[i / 2].v[i % 2 * 2], x[i / 2].v[i % 2 * 2 + 1], part);
  }
}

constexpr int kStagedStep = 16 * 4 * 4;  // words: 16 rows, four units, 16 bytes

// The same in shared memory, [part][step][unit][4], as `staged_query` wants it; by `threads` threads, of which this is `mine`.
template <class KV, int kSteps>
OCTAVO_GPU_FN void stage_queries(int32_t* to, const QueryRows& rows, int32_t first, int mine, int threads) {
  using Units = KVUnits<KV>;
  constexpr int kQuads = 8 * kSteps;  // runs of four dimensions: neighbours read neighbours
  for (int at = mine; at < 16 * kQuads; at += threads) {
    const int row = at / kQuads, dim = at % kQuads * 4;
    Floats4 x = {};
    if (first + row < rows.count && dim < rows.head_dim()) x = *reinterpret_cast<const Floats4*>(rows.query(first + row) + dim);
#pragma unroll
    for (int part = 0; part < Units::kParts; ++part) {
      int32_t* unit = to + (part * kSteps + Units::step_of(dim)) * kStagedStep + unit_place(row, Units::q_of(dim)) * 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) unit[dim % kUnit / 2 + i] = Units::pack(x.v[2 * i], x.v[2 * i + 1], part);
    }
  }
}
template <class Operand>
OCTAVO_GPU_FN Operand staged_query(const int32_t* staged, int step) {
  Operand to;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const Words4 unit = reinterpret_cast<const Words4*>(staged + step * kStagedStep)[unit_place(unit_row(u), unit_q(u))];
#pragma unroll
    for (int i = 0; i < 4; ++i) to.w[u][i] = unit.w[i];
  }
  return to;
}

// Where 16 neighbouring positions lie, the first of them a multiple of 16.
struct Run {
  const uint8_t* keys;
  int32_t slot;  // in the page
};

// Pages of one kv head of one sequence, by run.
template <class KV>
struct RunPages {
  const int32_t* table;
  const uint8_t* base;
  int64_t page_bytes;
  uint32_t magic;  // division by what a page holds
  int32_t runs, row_bytes, values_from;

  OCTAVO_GPU_FN RunPages(const PagedAttentionArgs& a, const Step& step, int64_t seq, int64_t kv_head) {
    const HeadPages<KV> pages(a, step, seq, kv_head);
    table = pages.table;
    base = pages.base;
    page_bytes = a.page_bytes;
    runs = static_cast<int32_t>(a.block_tokens) / kTokenRun;
    magic = (0x80000000u + static_cast<uint32_t>(runs) - 1) / static_cast<uint32_t>(runs);
    row_bytes = static_cast<int32_t>(a.head_dim * sizeof(typename KV::T));
    values_from = static_cast<int32_t>(a.block_tokens) * row_bytes;
  }

  OCTAVO_GPU_FN int32_t block_of(int32_t run) const {  // run * runs < 2^31
    return static_cast<int32_t>(static_cast<uint64_t>(static_cast<uint32_t>(run)) * magic >> 31);
  }
  OCTAVO_GPU_FN int32_t page_of(int32_t run) const { return load_uniform(table + block_of(run)); }
  OCTAVO_GPU_FN Run run(int32_t run, int32_t page) const {
    const int32_t slot = (run - block_of(run) * runs) * kTokenRun;
    return {base + page * page_bytes + slot * row_bytes, slot};
  }

  // Scales of 32 keys, then of their values, to `to`.
  OCTAVO_GPU_FN void fetch_scales(float* to, const Run& first, const Run& second) const {
#pragma unroll
    for (int at = 0; at < 2 * 32; at += kWave) {
      const int i = at + lane();
      const Run& run = i % 32 < kTokenRun ? first : second;
      const auto* scales = reinterpret_cast<const float*>(run.keys - run.slot * row_bytes + 2 * values_from) + run.slot;
      const float scale = scales[i / 32 * (runs * kTokenRun) + i % kTokenRun];
      if constexpr (CodesOf<KV>::kFactor == 1.0f) {
        to[i] = scale;
      } else {
        to[i] = scale * (1.0f / CodesOf<KV>::kFactor);
      }
    }
  }
};

}  // namespace octavo::gpu

#endif
