// The rows of attention on matrix units: queries of one sequence and kv head, as operands from memory or from shared memory.
#pragma once

#include "gpu/attention_mma_units.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

constexpr float kLog2E = 0x1.715476p+0f;

struct alignas(16) Floats4 {
  float v[4];
};
OCTAVO_GPU_FN void store_four(float* to, const Floats4& x) { *reinterpret_cast<Floats4*>(to) = Floats4{{x.v[0], x.v[1], x.v[2], x.v[3]}}; }

// Row r is token r / group and query head r % group.
template <class Args>
struct AttentionRows {
  const Args& a;
  int32_t token, head;  // the first ones
  int32_t group, count, first_position;
  OCTAVO_GPU_FN int32_t head_dim() const { return static_cast<int32_t>(a.head_dim); }
  OCTAVO_GPU_FN int32_t position(int32_t row) const { return first_position + row / group; }
  OCTAVO_GPU_FN int32_t head_of(int32_t row) const { return head + row % group; }
  OCTAVO_GPU_FN const float* query(int32_t row) const { return a.q + (token + row / group) * a.ldq + head_of(row) * a.head_dim; }
  OCTAVO_GPU_FN float* result(int32_t row) const { return a.y + (token + row / group) * a.ldy + head_of(row) * a.head_dim; }
};

// A position sees low .. high.
struct QueryRows : AttentionRows<PagedAttentionArgs> {
  static constexpr bool kHasSinks = true;
  OCTAVO_GPU_FN int32_t low(int32_t position) const {
    const auto window = static_cast<int32_t>(a.window);
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  OCTAVO_GPU_FN int32_t high(int32_t position) const { return position; }
  OCTAVO_GPU_FN int32_t distance(int32_t position, int32_t key) const { return position - key; }
  OCTAVO_GPU_FN float softcap() const { return a.softcap; }
};

// Unit u of a lane of queries of 16 rows: rows that are not there, and dimensions beyond head_dim, are 0.
template <class Units, class Rows>
OCTAVO_GPU_FN void load_query(typename Units::Operand (&to)[Units::kParts], const Rows& rows, int32_t first, int step) {
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
template <class Units, int kSteps, class Rows>
OCTAVO_GPU_FN void stage_queries(int32_t* to, const Rows& rows, int32_t first, int mine, int threads) {
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

}  // namespace octavo::gpu

#endif
