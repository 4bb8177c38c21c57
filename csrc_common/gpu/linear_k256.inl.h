// Super-blocks of 256 inputs with integer sub-scales (q2k to q6k) on int8 matrix units, with the bits of CPUs (levels mma and
// mmawide). Codes are multiplied by their sub-scales before the matrix units see them: a product of 15 bits is split into its
// low seven bits and the rest, two exact sums that are joined once per super-block. Minima are a product of their own: sub-minima
// by the sums of inputs, which are split likewise.
//
//   few   a block computes one panel of 16 outputs for 16 rows; its four waves each take a super-block per round, with those of
//         kAhead rounds on their way; every thread then joins the four of a round in order for its own outputs and rows.
//   wide  a wave computes a panel x kSuperTiles tiles of 16 rows in registers; inputs come through shared memory.
#pragma once

#include "gpu/mma_inputs.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// `group`: inputs of a sub-scale. Codes have `bits` bits, in two's complement if signed; adding `zero` makes them none below 0.
template <class CodesOf, int group_of, bool has_min_of, int bits_of, bool is_signed>
struct FormatK256 {
  using Codes = CodesOf;
  static constexpr int group = group_of, bits = bits_of, zero = is_signed ? 1 << (bits - 1) : 0;
  static constexpr bool has_min = has_min_of;
  static constexpr int kBias = is_signed ? 8192 : 0;  // makes products none below 0
};

struct SuperLayout {
  const uint16_t* d;
  const uint16_t* dmin;
  const uint8_t* subs;
  const uint8_t* mins;
  template <class Codes>
  OCTAVO_GPU_FN SuperLayout(const LinearArgs& a, const Layout<Codes>& lay)
      : d(reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(a.weight) + lay.scales())), dmin(d + lay.entries()),
        subs(reinterpret_cast<const uint8_t*>(dmin + lay.entries())), mins(subs + 16 * lay.entries()) {}
};

// Four codes by `sub`: the low seven bits of the products, and what is above them, a byte each.
template <class Format>
OCTAVO_GPU_FN void fold_word(uint32_t codes, int32_t sub, int32_t& low, int32_t& high) {
  constexpr uint32_t kMask = ((1u << Format::bits) - 1) * 0x00010001u, kZero = Format::zero * 0x00010001u;
  const uint32_t bias = static_cast<uint32_t>(Format::kBias - Format::zero * sub) * 0x00010001u;
  uint32_t at[2];
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t two = (codes >> 8 * odd & kMask) ^ kZero;
    at[odd] = static_cast<uint32_t>(static_cast<int32_t>(two) * sub) + bias;
  }
  low = static_cast<int32_t>((at[0] & 0x007F007Fu) | (at[1] & 0x007F007Fu) << 8);
  const uint32_t above = (at[0] >> 7 & 0x007F007Fu) | (at[1] << 1 & 0x7F007F00u);
  high = static_cast<int32_t>(Format::kBias ? ((above | 0x80808080u) - (Format::kBias / 128) * 0x01010101u) ^ 0x80808080u : above);
}

// A super-block of one panel: a lane's codes, and its sub-scales and sub-minima.
template <class Format>
struct SuperBlock {
  RecordUnits<typename Format::Codes> half[2];
  Words4 subs[kUnits], mins[Format::has_min ? kUnits : 1];
  OCTAVO_GPU_FN void fetch_half(const LinearArgs& a, const Layout<typename Format::Codes>& lay, int64_t panel, int64_t g, int i) {
    half[i].fetch(static_cast<const uint8_t*>(a.weight) + lay.panel(panel) + (2 * g + i) * Format::Codes::kRecordBytes);
  }
  OCTAVO_GPU_FN void fetch_subs(const Layout<typename Format::Codes>& lay, const SuperLayout& side, int64_t panel, int64_t g) {
    for (int u = 0; u < kUnits; ++u) {
      const int64_t entry = lay.entry(panel, g, unit_row(u));
      subs[u] = reinterpret_cast<const Words4*>(side.subs)[entry];
      if constexpr (Format::has_min) mins[u] = reinterpret_cast<const Words4*>(side.mins)[entry];
    }
  }
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, const Layout<typename Format::Codes>& lay, const SuperLayout& side, int64_t panel,
                           int64_t g) {
    for (int i = 0; i < 2; ++i) fetch_half(a, lay, panel, g, i);
    fetch_subs(lay, side, panel, g);
  }
  // Step i of 32 inputs.
  OCTAVO_GPU_FN void fold(OperandI8& low, OperandI8& high, int i) const {
    OperandI8 codes;
    half[i / 4].group(codes, i % 4);
    for (int u = 0; u < kUnits; ++u) {
      const int shift = Format::group == 32 ? i % 4 * 8 : i % 2 * 16 + unit_q(u) / 2 * 8;
      const int32_t sub = static_cast<int8_t>(static_cast<uint32_t>(subs[u].w[i * 32 / Format::group / 4]) >> shift);
      for (int word = 0; word < 2; ++word)
        fold_word<Format>(static_cast<uint32_t>(codes.w[u][word]), sub, low.w[u][word], high.w[u][word]);
    }
  }
  // Sub-minima as an operand: those of units 0 and 1 where there are sixteen, of unit 0 where there are eight.
  OCTAVO_GPU_FN void minima(OperandI8& to) const {
    for (int u = 0; u < kUnits; ++u)
      for (int word = 0; word < 2; ++word) {
        const int32_t first = mins[u].w[word], second = mins[u].w[2 + word];
        to.w[u][word] = unit_q(u) == 0 ? first : Format::group == 16 && unit_q(u) == 1 ? second : 0;
      }
  }
};

// The sums of inputs that minima are multiplied by, split: of 16 inputs each, or of 32.
template <int group>
OCTAVO_GPU_FN void input_sums(OperandI8& low, OperandI8& high, const LinearArgs& a, int64_t first_row, int64_t rows, int64_t g) {
  for (int u = 0; u < kUnits; ++u) {
    const int64_t row = first_row + unit_row(u) < rows ? first_row + unit_row(u) : rows - 1;
    const int32_t* sums = a.sums + (row * a.lds + g) * 16;
    for (int word = 0; word < 2; ++word) {
      uint32_t lo = 0, hi = 0;
      for (int i = 0; i < 4; ++i) {
        int32_t sum;
        if constexpr (group == 16) sum = sums[unit_q(u) % 2 * 8 + word * 4 + i];
        else sum = sums[(word * 4 + i) * 2] + sums[(word * 4 + i) * 2 + 1];
        lo |= static_cast<uint32_t>(sum & 127) << 8 * i;
        hi |= static_cast<uint32_t>(sum >> 7 & 255) << 8 * i;
      }
      low.w[u][word] = static_cast<int32_t>(lo), high.w[u][word] = static_cast<int32_t>(hi);
    }
  }
}

OCTAVO_GPU_FN int32_t joined(int32_t low, int32_t high) { return low + high * 128; }

template <class Format>
OCTAVO_GPU_FN float join_super(float acc, int32_t sum, int32_t min_sum, float d, float dmin, float s) {
  acc = V::fma(static_cast<float>(sum), s * d, acc);
  return Format::has_min ? V::fma(static_cast<float>(min_sum), -(s * dmin), acc) : acc;
}

template <class Format>
OCTAVO_GPU_FN void linear_k256_few(const Step& step, const LinearArgs& a) {
  using Codes = typename Format::Codes;
  constexpr int kAhead = kUnits > 1 ? 1 : Codes::kRecordBytes == Codes4::kRecordBytes ? 4 : 2;
  constexpr int kPairsOf = kTile * kPanel / kMmaThreads;
  OCTAVO_SHARED(int32_t, sums, kMmaWaves * kPanel * kTile);
  OCTAVO_SHARED(int32_t, min_sums, kMmaWaves * kPanel * kTile);
  const Layout<Codes> lay(a.n, a.k, 256);
  const SuperLayout side(a, lay);
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  const int64_t rounds = ceil_div(lay.groups, kMmaWaves);
  const auto block_of = [&](int64_t round) {
    const int64_t g = round * kMmaWaves + wave();
    return g < lay.groups ? g : lay.groups - 1;
  };
  SuperBlock<Format> ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (i < rounds) ahead[i].fetch(a, lay, side, panel, block_of(i));
  float acc[kPairsOf] = {};
  for (int64_t first = 0; first < rounds; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t round = first + i;
      if (round >= rounds) break;
      float d[kPairsOf][kMmaWaves], dmin[kPairsOf][kMmaWaves], s[kPairsOf][kMmaWaves];
      for (int p = 0; p < kPairsOf; ++p)
        for (int j = 0; j < kMmaWaves; ++j) {
          const int t = thread() + p * kMmaThreads;
          const int64_t g = round * kMmaWaves + j < lay.groups ? round * kMmaWaves + j : lay.groups - 1;
          const int64_t entry = lay.entry(panel, g, t / kTile), row = first_row + t % kTile < rows ? first_row + t % kTile : rows - 1;
          d[p][j] = float_of_half(side.d[entry]), dmin[p][j] = Format::has_min ? float_of_half(side.dmin[entry]) : 0.0f;
          s[p][j] = a.scales[row * a.lds + g];
        }
      const int64_t mine = block_of(round);
      SumsI32 low, high, min_low, min_high;
#pragma unroll
      for (int at = 0; at < 8; ++at) {
        OperandI8 x, w_low, w_high;
        load_rows(x, a.x, a.ldx, first_row, rows, mine * 256 + at * 32);
        ahead[i].fold(w_low, w_high, at);
        mma(low, w_low, x);
        mma(high, w_high, x);
      }
      if constexpr (Format::has_min) {
        OperandI8 w, x_low, x_high;
        ahead[i].minima(w);
        input_sums<Format::group>(x_low, x_high, a, first_row, rows, mine);
        mma(min_low, w, x_low);
        mma(min_high, w, x_high);
      }
      for (int v = 0; v < kValues; ++v) {
        const int to = (row_of_a(v) * kTile + row_of_b(v)) * kMmaWaves + wave();
        sums[to] = joined(low.v[v], high.v[v]);
        if constexpr (Format::has_min) min_sums[to] = joined(min_low.v[v], min_high.v[v]);
      }
      if (round + kAhead < rounds) ahead[i].fetch(a, lay, side, panel, block_of(round + kAhead));
      sync_shared();
      for (int p = 0; p < kPairsOf; ++p) {
        const int from = (thread() + p * kMmaThreads) * kMmaWaves;
        for (int j = 0; j < kMmaWaves; ++j)
          if (round * kMmaWaves + j < lay.groups)
            acc[p] = join_super<Format>(acc[p], sums[from + j], Format::has_min ? min_sums[from + j] : 0, d[p][j], dmin[p][j], s[p][j]);
      }
      sync_shared();
    }
  }
  for (int p = 0; p < kPairsOf; ++p) {
    const int t = thread() + p * kMmaThreads;
    const int64_t out = panel * kPanel + t / kTile, row = first_row + t % kTile;
    if (row < rows && out < a.n) finish(a, row, out, acc[p]);
  }
}

// Rows of a block, as tables of kernels name them, and tiles that a wave's registers hold at a time.
constexpr int kSuperRows = kValues == 4 ? 128 : 64, kSuperTiles = kValues == 4 ? 8 : 2;
constexpr int kSuperSteps = kSharesInputs ? 2 : 1;  // of 32 inputs at once
using SuperInputs = InputStage<kSuperTiles>;
constexpr int kSuperWords =
    2 * SuperInputs::kWords > kMmaWaves * kStaged<kSuperTiles> ? 2 * SuperInputs::kWords : kMmaWaves * kStaged<kSuperTiles>;

template <class Format>
OCTAVO_GPU_FN void linear_k256_wide(const Step& step, const LinearArgs& a) {
  OCTAVO_SHARED(Words4, shared_units, kSuperWords / 4);
  int32_t* const shared = shared_units[0].w;
  const Layout<typename Format::Codes> lay(a.n, a.k, 256);
  const SuperLayout side(a, lay);
  const int64_t own = static_cast<int64_t>(block_y()) * kMmaWaves + wave(), panel = own < lay.panels ? own : lay.panels - 1;
  const int64_t first_of_block = static_cast<int64_t>(block_x()) * kSuperRows, rows = num_rows(a.rows, step);
  const int64_t stages = 2 * lay.groups;
#pragma unroll 1
  for (int64_t first_row = first_of_block; first_row < first_of_block + kSuperRows && first_row < rows; first_row += kSuperTiles * kTile) {
    SuperInputs inputs;
    if (kSharesInputs) {
      inputs.fetch(a, first_row, rows, 0, 4 * stages);
      inputs.store(shared);
      sync_shared();
    }
    float acc[kSuperTiles][kValues] = {};
    for (int64_t g = 0; g < lay.groups; ++g) {
      SumsI32 low[kSuperTiles], high[kSuperTiles];
      SuperBlock<Format> block;
      block.fetch_subs(lay, side, panel, g);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (kUnits == 4) keep_order();  // more at once takes too many registers
        block.fetch_half(a, lay, panel, g, half);
        const int64_t stage = 2 * g + half;
        const int32_t* const codes = shared + half * SuperInputs::kWords;
        if (kSharesInputs && stage + 1 < stages) inputs.fetch(a, first_row, rows, stage + 1, 4 * stages);
#pragma unroll
        for (int first = 0; first < 4; first += kSuperSteps) {
          OperandI8 w_low[kSuperSteps], w_high[kSuperSteps];
#pragma unroll
          for (int i = 0; i < kSuperSteps; ++i) block.fold(w_low[i], w_high[i], 4 * half + first + i);
#pragma unroll
          for (int t = 0; t < kSuperTiles; ++t) {
            if (t % 2 == 0 && first_row + t * kTile >= rows) break;
            OperandI8 x[kSuperSteps];
            if constexpr (kSharesInputs) SuperInputs::load(x, codes, t, first);
            else load_rows(x[0], a.x, a.ldx, first_row + t * kTile, rows, 128 * stage + 32 * first);
#pragma unroll
            for (int i = 0; i < kSuperSteps; ++i) {
              mma(low[t], w_low[i], x[i]);
              mma(high[t], w_high[i], x[i]);
            }
          }
          if (kUnits == 4) keep_order();
        }
        if (kSharesInputs && stage + 1 < stages) inputs.store(shared + (1 - half) * SuperInputs::kWords);
        if (kSharesInputs) sync_shared();
      }
#pragma unroll
      for (int t = 0; t < kSuperTiles; ++t) {
        if (first_row + t * kTile >= rows) break;
        if (kUnits == 4) keep_order();
        SumsI32 min_low, min_high;
        if constexpr (Format::has_min) {
          OperandI8 w, x_low, x_high;
          input_sums<Format::group>(x_low, x_high, a, first_row + t * kTile, rows, g);
          block.minima(w);
          mma(min_low, w, x_low);
          mma(min_high, w, x_high);
        }
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          const int64_t entry = lay.entry(panel, g, row_of_a(v)), row = first_row + t * kTile + row_of_b(v);
          acc[t][v] = join_super<Format>(
              acc[t][v], joined(low[t].v[v], high[t].v[v]), joined(min_low.v[v], min_high.v[v]), float_of_half(side.d[entry]),
              Format::has_min ? float_of_half(side.dmin[entry]) : 0.0f, a.scales[(row < rows ? row : rows - 1) * a.lds + g]);
        }
      }
    }
    finish_panel(a, reinterpret_cast<float*>(shared) + wave() * kStaged<kSuperTiles>, acc, own, first_row, rows);
    sync_shared();
  }
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR_K256(kind, ...)                                                                                      \
  OCTAVO_KERNEL(linear_##kind, mma, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {           \
    octavo::gpu::linear_k256_few<octavo::gpu::FormatK256<octavo::gpu::__VA_ARGS__>>(*step_, a);                            \
  }                                                                                                                        \
  OCTAVO_KERNEL(linear_##kind, mmawide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kSuperRows,                          \
                octavo::gpu::kMmaWaves * octavo::gpu::kPanel, OCTAVO_TWO_WAVES) {                                          \
    octavo::gpu::linear_k256_wide<octavo::gpu::FormatK256<octavo::gpu::__VA_ARGS__>>(*step_, a);                           \
  }
OCTAVO_LINEAR_K256(q2k, Codes4, 16, true, 2, false)
OCTAVO_LINEAR_K256(q3k, Codes8, 16, false, 3, true)
OCTAVO_LINEAR_K256(q4k, Codes4, 32, true, 4, false)
OCTAVO_LINEAR_K256(q5k, Codes8, 32, true, 5, false)
OCTAVO_LINEAR_K256(q6k, Codes8, 16, false, 6, true)

#endif
