// Integer formats with a scale per group of 32, 64 or 128 inputs on int8 matrix units, with the bits of CPUs (levels mma and
// mmawide): a product of 16 x 32 inputs by 16 outputs is an exact int32, groups are joined in order by fma as
// docs/numerics.md says.
//
//   few   a block computes one panel of 16 outputs for 16 rows. Its four waves each take a record (128 inputs) per round, with the
//         records of kAhead rounds on their way, and leave the exact sums in shared memory; then every thread joins the round's
//         sums of its own outputs and rows in order, so that the order of additions stays though records are computed at once.
//         A wave's threads have few rows of all outputs: one whose rows are all missing adds nothing.
//   wide  a wave computes kGroupPanels panels x kGroupTiles tiles of 16 rows in registers; inputs come
//         through shared memory.
#pragma once

#include "gpu/mma_inputs.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// What a group has beside its codes. `low`: a minimum, or a zero point.
struct GroupSide {
  float d, low;
};

// Bytes 0..15 less 8: 0x78 more stays within a byte.
OCTAVO_GPU_FN void less_eight(int32_t (&w)[2]) {
  for (int i = 0; i < 2; ++i) w[i] = static_cast<int32_t>((static_cast<uint32_t>(w[i]) + 0x78787878u) ^ 0x80808080u);
}

// Groups of 32 with float16 scales and, perhaps, minima.
template <class CodesOf, bool has_min>
struct FormatG32 {
  using Codes = CodesOf;
  Layout<Codes> lay;
  const uint16_t* d;
  const uint16_t* m;
  OCTAVO_GPU_FN explicit FormatG32(const LinearArgs& args)
      : lay(args.n, args.k, 32), d(reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(args.weight) + lay.scales())),
        m(d + lay.entries()) {}
  static constexpr int kMostSteps = 1;  // of a group
  // Codes of 4 bits without minima are q4_0's, with a zero point; all others have none.
  static constexpr bool kHasLow = has_min;
  static OCTAVO_GPU_FN int steps_of_group() { return 1; }
  static OCTAVO_GPU_FN void take_zero(OperandI8& w) {
    if constexpr (!has_min && Codes::kRecordBytes == Codes4::kRecordBytes)
      for (int u = 0; u < kUnits; ++u) less_eight(w.w[u]);
  }
  OCTAVO_GPU_FN GroupSide side(int64_t entry) const {
    return {float_of_half(d[entry]), has_min ? float_of_half(m[entry]) : 0.0f};
  }
  // Of the outputs whose values a lane has, together where they are neighbours.
  OCTAVO_GPU_FN void sides(GroupSide (&to)[kValues], int64_t panel, int64_t group) const {
    if constexpr (kValues == 4) {
      const int64_t entry = lay.entry(panel, group, row_of_a(0));
      const Words2 four = *reinterpret_cast<const Words2*>(d + entry);
      const Words2 lows = has_min ? *reinterpret_cast<const Words2*>(m + entry) : Words2{};
#pragma unroll
      for (int v = 0; v < 4; ++v)
        to[v] = {float_of_half(static_cast<uint16_t>(four.w[v / 2] >> v % 2 * 16)), float_of_half(static_cast<uint16_t>(lows.w[v / 2] >> v % 2 * 16))};
    } else {
#pragma unroll
      for (int v = 0; v < kValues; ++v) to[v] = side(lay.entry(panel, group, row_of_a(v)));
    }
  }
  OCTAVO_GPU_FN float join(float acc, int32_t sum, GroupSide w, float s, int32_t input_sum) const {
    acc = V::fma(static_cast<float>(sum), s * w.d, acc);
    return has_min ? V::fma(static_cast<float>(input_sum), s * w.low, acc) : acc;
  }
};

// Four bits, a float32 scale and a zero point per group; the last group may be short.
struct FormatI4 {
  using Codes = Codes4;
  static constexpr int kMostSteps = 4;
  static constexpr bool kHasLow = true;
  static OCTAVO_GPU_FN void take_zero(OperandI8&) {}  // `join` does
  int64_t group;
  Layout<Codes> lay;
  const float* scales;
  const uint8_t* zeros;
  OCTAVO_GPU_FN explicit FormatI4(const LinearArgs& a)
      : group(apart_group(a.flags)), lay(a.n, a.k, group),
        scales(reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.weight) + lay.scales())),
        zeros(reinterpret_cast<const uint8_t*>(scales + lay.entries())) {}
  OCTAVO_GPU_FN int steps_of_group() const { return static_cast<int>(group / 32); }
  OCTAVO_GPU_FN GroupSide side(int64_t entry) const { return {scales[entry], static_cast<float>(zeros[entry])}; }
  OCTAVO_GPU_FN void sides(GroupSide (&to)[kValues], int64_t panel, int64_t group) const {
    if constexpr (kValues == 4) {
      const int64_t entry = lay.entry(panel, group, row_of_a(0));
      const Words4 four = *reinterpret_cast<const Words4*>(scales + entry);
      const int32_t lows = *reinterpret_cast<const int32_t*>(zeros + entry);
#pragma unroll
      for (int v = 0; v < 4; ++v) to[v] = {float_of_word(four.w[v]), static_cast<float>(static_cast<uint8_t>(lows >> 8 * v))};
    } else {
#pragma unroll
      for (int v = 0; v < kValues; ++v) to[v] = side(lay.entry(panel, group, row_of_a(v)));
    }
  }
  OCTAVO_GPU_FN float join(float acc, int32_t sum, GroupSide w, float s, int32_t input_sum) const {
    return V::fma(static_cast<float>(sum - static_cast<int32_t>(w.low) * input_sum), s * w.d, acc);
  }
};

constexpr int kRoundSteps = 4 * kMmaWaves;               // steps of 32 inputs that the waves of a block take at once
constexpr int kPairs = kTile * kPanel / kMmaThreads;     // (output, row) pairs of a thread
constexpr int kSideStride = kRoundSteps + 4;             // words; the paddings keep banks apart
constexpr int kSumStride = kTile * kSideStride + 4;
static_assert(kTile * kPanel == kTile * kRoundSteps);    // a thread brings as many entries of a side array as it has pairs

constexpr int kSideWords = kTile * kSideStride, kFewWords = kPanel * kSumStride + 4 * kSideWords;  // of shared memory

// The side arrays of a round in shared memory, of outputs and of rows.
struct RoundSides {
  float d[kPairs], low[kPairs], s[kPairs];
  int32_t input_sum[kPairs];
};

template <class Format>
OCTAVO_GPU_FN void linear_groups_few(const Step& step, const LinearArgs& a, int32_t* sums) {
  using Codes = typename Format::Codes;
  constexpr int kAhead = 8192 / Codes::kRecordBytes / kUnits > 1 ? 8192 / Codes::kRecordBytes / kUnits : 2;
  constexpr bool kHasLow = Format::kHasLow;
  auto* const out_d = reinterpret_cast<float*>(sums + kPanel * kSumStride);
  float *const row_s = out_d + kSideWords, *const out_low = row_s + kSideWords;
  auto* const row_sum = reinterpret_cast<int32_t*>(out_low + kSideWords);
  const Format format(a);
  const auto& lay = format.lay;
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  const int per = format.steps_of_group(), round_groups = kRoundSteps / per;
  const int64_t steps = lay.groups * per, rounds = ceil_div(lay.records, kMmaWaves);
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight) + lay.panel(panel);

  const auto fetch = [&](RecordUnits<Codes>& to, int64_t round) {
    const int64_t record = round * kMmaWaves + wave();
    to.fetch(weight + (record < lay.records ? record : lay.records - 1) * Codes::kRecordBytes);
  };
  // Steps behind the last take any inputs: their sums are not joined.
  const auto fetch_inputs = [&](OperandI8 (&to)[4], int64_t round) {
    for (int g = 0; g < 4; ++g) {
      const int64_t at = (round * kMmaWaves + wave()) * 4 + g;
      load_rows(to[g], a.x, a.ldx, first_row, rows, 32 * (at < steps ? at : steps - 1));
    }
  };
  const auto fetch_sides = [&](RoundSides& to, int64_t round) {
    for (int p = 0; p < kPairs; ++p) {
      const int t = thread() + p * kMmaThreads;
      const int64_t g = round * round_groups + t / kPanel, h = round * round_groups + t % kRoundSteps;
      const GroupSide w = format.side(lay.entry(panel, g < lay.groups ? g : lay.groups - 1, t % kPanel));
      const int64_t row = first_row + t / kRoundSteps < rows ? first_row + t / kRoundSteps : rows - 1;
      const int64_t at = row * a.lds + (h < lay.groups ? h : lay.groups - 1);
      to.d[p] = w.d, to.s[p] = a.scales[at];
      if constexpr (kHasLow) to.low[p] = w.low, to.input_sum[p] = a.sums[at];
    }
  };

  RecordUnits<Codes> ahead[kAhead];
  OperandI8 x[4];
  RoundSides sides;
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (i < rounds) fetch(ahead[i], i);
  fetch_inputs(x, 0);
  fetch_sides(sides, 0);
  float acc[kPairs] = {};
  for (int64_t first = 0; first < rounds; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t round = first + i;
      if (round >= rounds) break;
      SumsI32 c[4];
      for (int g = 0; g < 4; ++g) {
        OperandI8 w;
        ahead[i].group(w, g);
        Format::take_zero(w);
        mma(c[g], w, x[g]);
      }
      for (int v = 0; v < kValues; ++v) {
        const Words4 four = {{c[0].v[v], c[1].v[v], c[2].v[v], c[3].v[v]}};
        *reinterpret_cast<Words4*>(sums + row_of_a(v) * kSumStride + row_of_b(v) * kSideStride + 4 * wave()) = four;
      }
      for (int p = 0; p < kPairs; ++p) {
        const int t = thread() + p * kMmaThreads, of_out = t % kPanel * kSideStride + t / kPanel;
        const int of_row = t / kRoundSteps * kSideStride + t % kRoundSteps;
        out_d[of_out] = sides.d[p], row_s[of_row] = sides.s[p];
        if constexpr (kHasLow) out_low[of_out] = sides.low[p], row_sum[of_row] = sides.input_sum[p];
      }
      if (round + kAhead < rounds) fetch(ahead[i], round + kAhead);
      if (round + 1 < rounds) {
        fetch_inputs(x, round + 1);
        fetch_sides(sides, round + 1);
      }
      sync_shared();
      const int64_t left = steps - round * kRoundSteps;
      for (int p = 0; p < kPairs; ++p) {
        const int t = thread() + p * kMmaThreads, out = t % kPanel, row = t / kPanel;
        if (first_row + row >= rows) continue;
        const int32_t* const sum_at = sums + out * kSumStride + row * kSideStride;
        const float *const d_at = out_d + out * kSideStride, *const low_at = out_low + out * kSideStride;
        const float* const s_at = row_s + row * kSideStride;
        const int32_t* const input_sum_at = row_sum + row * kSideStride;
        const auto join = [&](int32_t sum, int g, float d, float s) {
          acc[p] = format.join(acc[p], sum, {d, kHasLow ? low_at[g] : 0.0f}, s, kHasLow ? input_sum_at[g] : 0);
        };
        if constexpr (Format::kMostSteps == 1) {  // of a wave's record four at a time
#pragma unroll
          for (int first_step = 0; first_step < kRoundSteps; first_step += 4) {
            const Words4 sum = *reinterpret_cast<const Words4*>(sum_at + first_step);
            const Words4 d = *reinterpret_cast<const Words4*>(d_at + first_step);
            const Words4 s = *reinterpret_cast<const Words4*>(s_at + first_step);
#pragma unroll
            for (int j = 0; j < 4; ++j)
              if (first_step + j < left) join(sum.w[j], first_step + j, float_of_word(d.w[j]), float_of_word(s.w[j]));
          }
        } else {
          int32_t sum = 0;
          for (int j = 0; j < kRoundSteps; ++j) {
            if (j >= left) break;
            sum += sum_at[j];
            if ((j + 1) % per) continue;
            join(sum, j / per, d_at[j / per], s_at[j / per]);
            sum = 0;
          }
        }
      }
      sync_shared();
    }
  }
  for (int p = 0; p < kPairs; ++p) {
    const int t = thread() + p * kMmaThreads;
    const int64_t out = panel * kPanel + t % kPanel, row = first_row + t / kPanel;
    if (row < rows && out < a.n) finish(a, row, out, acc[p]);
  }
}

// Rows of a block, which tables of kernels name: the same on all chips of a width. Where registers do not hold sums of so many (a
// lane of AMD's wave64 has 4 values of a product, others have 8; sums of groups of several steps stay; lanes of RDNA 3 have whole
// rows of operands) a block takes a part of them at a time.
constexpr int kGroupPanels = 2, kGroupRows = kValues == 4 ? 128 : 64;
template <class Format>
constexpr int kGroupTiles = kValues == 4 ? 8 : kUnits == 4 || Format::kMostSteps > 1 ? 2 : 4;
template <class Format>
constexpr int kGroupsAtOnce = kValues == 4 && Format::kMostSteps == 1 ? 2 : 1;

// What a block of many rows needs: buffers of two stages, then sums on their way out.
template <int tiles>
struct GroupShared {
  using Inputs = InputStage<tiles>;
  using Sides = SideStage<tiles>;
  static constexpr int kStage = Inputs::kWords + Sides::kWords;
  static constexpr int kWords = 2 * kStage > kMmaWaves * kStaged<tiles> ? 2 * kStage : kMmaWaves * kStaged<tiles>;
};

#define OCTAVO_GROUP_SHARED(name, Format)                                                                                  \
  OCTAVO_SHARED(octavo::gpu::Words4, name##_units,                                                                         \
                octavo::gpu::GroupShared<octavo::gpu::kGroupTiles<Format>>::kWords / 4);                                   \
  int32_t* const name = name##_units[0].w

template <class Format>
OCTAVO_GPU_FN void linear_groups_wide(const Step& step, const LinearArgs& a, int32_t* shared) {
  constexpr int kTiles = kGroupTiles<Format>, kAtOnce = kGroupsAtOnce<Format>;
  using Shared = GroupShared<kTiles>;
  using Codes = typename Format::Codes;
  const Format format(a);
  const auto& lay = format.lay;
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * kGroupPanels;
  const int64_t first_of_block = static_cast<int64_t>(block_x()) * kGroupRows, rows = num_rows(a.rows, step);
  const int per = format.steps_of_group(), stage_groups = 4 / per;
  const int64_t steps = lay.groups * per;
  const auto panel_of = [&](int p) { return first_panel + p < lay.panels ? first_panel + p : lay.panels - 1; };

#pragma unroll 1
  for (int64_t first_row = first_of_block; first_row < first_of_block + kGroupRows && first_row < rows; first_row += kTiles * kTile) {
    typename Shared::Inputs inputs;
    typename Shared::Sides sides;
    RecordUnits<Codes> units[kGroupPanels];
    const auto fetch = [&](int64_t record) {
      inputs.fetch(a, first_row, rows, record, steps);
      sides.fetch(a, first_row, rows, record * stage_groups, lay.groups);
    };
    const auto store = [&](int64_t record) {
      inputs.store(shared + record % 2 * Shared::kStage);
      sides.store(shared + record % 2 * Shared::kStage + Shared::Inputs::kWords);
    };
    const auto fetch_units = [&](int64_t record) {
#pragma unroll
      for (int p = 0; p < kGroupPanels; ++p)
        units[p].fetch(static_cast<const uint8_t*>(a.weight) + lay.panel(panel_of(p)) + record * Codes::kRecordBytes);
    };
    fetch(0);
    if (kUnits < 4) fetch_units(0);
    store(0);
    sync_shared();
    float acc[kGroupPanels][kTiles][kValues] = {};
    SumsI32 sums[kGroupPanels][kTiles];
    for (int64_t record = 0; record < lay.records; ++record) {
      const int32_t* const codes = shared + record % 2 * Shared::kStage;
      const int32_t* const beside = codes + Shared::Inputs::kWords;
      if (kUnits == 4) fetch_units(record);  // no registers to have them ahead
      if (record + 1 < lay.records) fetch(record + 1);
#pragma unroll
      for (int first = 0; first < 4; first += kAtOnce) {
        OperandI8 w[kAtOnce][kGroupPanels];
        GroupSide side[kAtOnce][kGroupPanels][kValues];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int64_t group = (4 * record + first + i) / per;
#pragma unroll
          for (int p = 0; p < kGroupPanels; ++p) {
            units[p].group(w[i][p], first + i);
            Format::take_zero(w[i][p]);
            format.sides(side[i][p], panel_of(p), group < lay.groups ? group : lay.groups - 1);
          }
        }
        if (kUnits < 4 && first + kAtOnce == 4 && record + 1 < lay.records) fetch_units(record + 1);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          if (t % 2 == 0 && first_row + t * kTile >= rows) break;
          OperandI8 x[kAtOnce];
          Shared::Inputs::load(x, codes, t, first);
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            const int64_t at = 4 * record + first + i;
            if (at >= steps) break;
#pragma unroll
            for (int p = 0; p < kGroupPanels; ++p) mma(sums[p][t], w[i][p], x[i]);
            if ((at + 1) % per) continue;
#pragma unroll
            for (int v = 0; v < kValues; ++v) {
              float s;
              int32_t input_sum;
              Shared::Sides::load(s, input_sum, beside, t * kTile + row_of_b(v), (first + i) / per);
#pragma unroll
              for (int p = 0; p < kGroupPanels; ++p) {
                acc[p][t][v] = format.join(acc[p][t][v], sums[p][t].v[v], side[i][p][v], s, input_sum);
                sums[p][t].v[v] = 0;
              }
            }
          }
        }
      }
      if (record + 1 < lay.records) store(record + 1);
      sync_shared();
    }
#pragma unroll
    for (int p = 0; p < kGroupPanels; ++p)
      finish_panel(a, reinterpret_cast<float*>(shared) + wave() * kStaged<kTiles>, acc[p], first_panel + p, first_row, rows);
    sync_shared();
  }
}

}  // namespace octavo::gpu

// Without minima a third of the arithmetic falls away.
#define OCTAVO_GROUPS_G32(function, Codes, shared)                                                                         \
  if (a.flags & octavo::gpu::kHasMin) {                                                                                    \
    octavo::gpu::function<octavo::gpu::FormatG32<octavo::gpu::Codes, true>>(*step_, a, shared);                            \
  } else {                                                                                                                 \
    octavo::gpu::function<octavo::gpu::FormatG32<octavo::gpu::Codes, false>>(*step_, a, shared);                           \
  }
#define OCTAVO_FEW_SHARED(name)                                                                                            \
  OCTAVO_SHARED(octavo::gpu::Words4, name##_units, octavo::gpu::kFewWords / 4);                                            \
  int32_t* const name = name##_units[0].w
#define OCTAVO_LINEAR_GROUPS(kind, Codes)                                                                                  \
  OCTAVO_KERNEL(linear_##kind, mma, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {           \
    OCTAVO_FEW_SHARED(shared);                                                                                             \
    OCTAVO_GROUPS_G32(linear_groups_few, Codes, shared)                                                                    \
  }                                                                                                                        \
  OCTAVO_KERNEL(linear_##kind, mmawide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kGroupRows,                         \
                octavo::gpu::kMmaWaves * octavo::gpu::kGroupPanels * octavo::gpu::kPanel, OCTAVO_TWO_WAVES) {              \
    using Format = octavo::gpu::FormatG32<octavo::gpu::Codes, true>;                                                       \
    OCTAVO_GROUP_SHARED(shared, Format);                                                                                   \
    OCTAVO_GROUPS_G32(linear_groups_wide, Codes, shared)                                                                   \
  }
OCTAVO_LINEAR_GROUPS(q4g32, Codes4)
OCTAVO_LINEAR_GROUPS(q5g32, Codes8)
OCTAVO_LINEAR_GROUPS(q8g32, Codes8)
OCTAVO_KERNEL(linear_i4, mma, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {
  OCTAVO_FEW_SHARED(shared);
  octavo::gpu::linear_groups_few<octavo::gpu::FormatI4>(*step_, a, shared);
}
OCTAVO_KERNEL(linear_i4, mmawide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kGroupRows,
              octavo::gpu::kMmaWaves * octavo::gpu::kGroupPanels * octavo::gpu::kPanel, OCTAVO_TWO_WAVES) {
  OCTAVO_GROUP_SHARED(shared, octavo::gpu::FormatI4);
  octavo::gpu::linear_groups_wide<octavo::gpu::FormatI4>(*step_, a, shared);
}

#endif
