// linear_{f8row,f8g128,mxfp8,mxfp4} on matrix units (levels mmafast and mmafastwide): products of E4M3 where the chip has them (CDNA 3 and
// 4, RDNA 4), elsewhere, and with E2M1, of float16, which every code of both is exactly. A group's scales meet its product as float32;
// CDNA 4 takes those of mx formats itself (gpu/linear_mx.inl.h).
//
//   few   a block computes one panel of 16 outputs for 16 rows; its four waves take records (128 inputs) in turn, with the codes of
//         kAhead rounds and the inputs of the next on their way, and add what they have in order.
//   wide  a wave computes kF8Panels panels x kF8Tiles tiles of 16 rows in registers; inputs come through shared memory.
#pragma once

#include <type_traits>

#include "gpu/f8.h"
#include "gpu/halves.h"
#include "gpu/linear_mx.inl.h"
#include "gpu/mma_inputs.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

#if defined(OCTAVO_HAS_F8)
constexpr bool kHasF8 = true;
#else
constexpr bool kHasF8 = false;
#endif

template <class Format>
struct F8Product {
  using Codes = typename Format::Codes;
  static constexpr bool is_f8 = kHasF8 && !Format::is4;
  using Operand = std::conditional_t<is_f8, OperandF8, OperandF16>;
  static constexpr float kFactor = is_f8 ? kF8Product : 1.0f;
  const LinearArgs& a;
  Layout<Codes> lay;
  const uint8_t* weight;
  OCTAVO_GPU_FN explicit F8Product(const LinearArgs& args)
      : a(args), lay(args.n, args.k, Format::group(args.k)), weight(static_cast<const uint8_t*>(args.weight)) {}
  OCTAVO_GPU_FN const uint8_t* record(int64_t panel, int64_t at) const { return weight + lay.panel(panel) + at * Codes::kRecordBytes; }
  // Step g of a record.
  static OCTAVO_GPU_FN void weights(Operand& to, const RecordUnits<Codes>& codes, int g) {
    for (int u = 0; u < kUnits; ++u) {
      if constexpr (Format::is4) {
        halves_of_e2m1(codes.raw[u].of4.w[g], to.w[u]);
      } else if constexpr (is_f8) {
        Codes::group(codes.raw[u], g, to.w[u]);
      } else {
        int32_t words[2];
        Codes::group(codes.raw[u], g, words);
        halves_of_e4m3(words, to.w[u]);
      }
    }
  }
  static OCTAVO_GPU_FN void inputs(Operand& to, const OperandI8& codes) {
    for (int u = 0; u < kUnits; ++u) {
      if constexpr (is_f8) {
        for (int i = 0; i < 2; ++i) to.w[u][i] = codes.w[u][i];
      } else {
        halves_of_e4m3(codes.w[u], to.w[u]);
      }
    }
  }
  // Joins the sums of group g.
  OCTAVO_GPU_FN void join(float (&acc)[kValues], const SumsF32& p, int64_t panel, int64_t g, int64_t first_row, int64_t rows) const {
    const int64_t group = g < lay.groups ? g : lay.groups - 1;  // there is nothing behind the last
    for (int v = 0; v < kValues; ++v) {
      const int64_t row = first_row + row_of_b(v) < rows ? first_row + row_of_b(v) : rows - 1;
      acc[v] = join_f8<Format>(acc[v], p.v[v], weight + lay.scales(), lay.entry(panel, group, row_of_a(v)), a.scales[row * a.lds + group] * kFactor);
    }
  }
  // Of a row that is one group.
  OCTAVO_GPU_FN float result(float sum, int64_t row, int64_t out) const {
    if constexpr (Format::blocks != 0) return sum;
    const float scale = reinterpret_cast<const float*>(weight + lay.scales())[out];
    return sum * kFactor * (a.scales[row * a.lds] * scale);
  }
};

template <class Format>
OCTAVO_GPU_FN void linear_f8_few(const Step& step, const LinearArgs& a) {
  using Product = F8Product<Format>;
  using Units = RecordUnits<typename Format::Codes>;
  constexpr int kAhead = 8192 / Format::Codes::kRecordBytes / kUnits > 1 ? 4096 / Format::Codes::kRecordBytes / kUnits : 1;
  OCTAVO_SHARED(float, partial, kMmaWaves * kTile * (kTile + 1));
  const Product product(a);
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  const int64_t records = product.lay.records;
  if (first_row >= rows) return;
  OperandI8 next[4];
  const auto fetch_inputs = [&](int64_t record) {
    for (int g = 0; g < 4; ++g) load_rows(next[g], a.x, a.ldx, first_row, rows, record * kCodesRecord + 32 * g);
  };
  Units ahead[kAhead];
  if (wave() < records) fetch_inputs(wave());
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (wave() + i * kMmaWaves < records) ahead[i].fetch(product.record(panel, wave() + i * kMmaWaves));
  float acc[kValues] = {};
  SumsF32 sums;
  for (int64_t first = wave(); first < records; first += kAhead * kMmaWaves) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t record = first + i * kMmaWaves;
      if (record >= records) break;
      const Units codes = ahead[i];
      OperandI8 in[4];
      for (int g = 0; g < 4; ++g) in[g] = next[g];
      if (record + kMmaWaves < records) fetch_inputs(record + kMmaWaves);
      if (record + kAhead * kMmaWaves < records) ahead[i].fetch(product.record(panel, record + kAhead * kMmaWaves));
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        typename Product::Operand w, x;
        Product::weights(w, codes, g);
        Product::inputs(x, in[g]);
        mma(sums, w, x);
        if constexpr (Format::blocks != 0) {
          if ((g + 1) % Format::blocks) continue;
          product.join(acc, sums, panel, (4 * record + g) / Format::blocks, first_row, rows);
          sums = {};
        }
      }
    }
  }
  for (int v = 0; v < kValues; ++v)
    partial[(wave() * kTile + row_of_b(v)) * (kTile + 1) + row_of_a(v)] = Format::blocks ? acc[v] : sums.v[v];
  sync();
  for (int t = thread(); t < kTile * kPanel; t += kMmaThreads) {
    const int64_t row = first_row + t / kTile, out = panel * kPanel + t % kTile;
    if (row >= rows || out >= a.n) continue;
    float sum = 0.0f;
    for (int w = 0; w < kMmaWaves; ++w) sum = sum + partial[(w * kTile + t / kTile) * (kTile + 1) + t % kTile];
    finish(a, row, out, product.result(sum, row, out));
  }
}

// Lanes of AMD's matrix cores of wave64 hold 4 values of a product, others 8.
constexpr int kF8Panels = 2, kF8Tiles = kValues == 4 ? 4 : 2;

template <class Format>
OCTAVO_GPU_FN void linear_f8_wide(const Step& step, const LinearArgs& a) {
  using Product = F8Product<Format>;
  using Stage = InputStage<kF8Tiles>;
  constexpr bool kShares = kSharesInputs && !(kUnits > 1 && Format::is_mx);  // scales of groups of 32 take many registers
  constexpr int kStages = 2 * Stage::kWords, kOut = kMmaWaves * kStaged<kF8Tiles>;
  OCTAVO_SHARED(Words4, units, (kStages > kOut ? kStages : kOut) / 4);
  int32_t* const shared = units[0].w;
  const Product product(a);
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * kF8Panels, panels = product.lay.panels;
  const int64_t first_row = static_cast<int64_t>(block_x()) * kF8Tiles * kTile, rows = num_rows(a.rows, step);
  if (first_row >= rows) return;
  const int64_t records = product.lay.records, steps = 4 * records;
  const auto panel_of = [&](int p) { return first_panel + p < panels ? first_panel + p : panels - 1; };
  float acc[kF8Panels][kF8Tiles][kValues] = {};
  SumsF32 sums[kF8Panels][kF8Tiles];
  Stage inputs;
  if (kShares) {
    inputs.fetch(a, first_row, rows, 0, steps);
    inputs.store(shared);
    sync_shared();
  }
  for (int64_t record = 0; record < records; ++record) {
    if (kShares && record + 1 < records) inputs.fetch(a, first_row, rows, record + 1, steps);
    RecordUnits<typename Format::Codes> codes[kF8Panels];
    for (int p = 0; p < kF8Panels; ++p) codes[p].fetch(product.record(panel_of(p), record));
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      typename Product::Operand w[kF8Panels];
      for (int p = 0; p < kF8Panels; ++p) Product::weights(w[p], codes[p], g);
#pragma unroll
      for (int t = 0; t < kF8Tiles; ++t) {
        OperandI8 in[1];
        typename Product::Operand x;
        if constexpr (kShares) Stage::load(in, shared + record % 2 * Stage::kWords, t, g);
        else load_rows(in[0], a.x, a.ldx, first_row + t * kTile, rows, record * kCodesRecord + 32 * g);
        Product::inputs(x, in[0]);
        for (int p = 0; p < kF8Panels; ++p) mma(sums[p][t], w[p], x);
      }
      if (kUnits > 1 || g == 1) keep_order();  // inputs of all steps at once take too many registers
      if constexpr (Format::blocks != 0) {
        if ((g + 1) % Format::blocks) continue;
#pragma unroll
        for (int p = 0; p < kF8Panels; ++p)
#pragma unroll
          for (int t = 0; t < kF8Tiles; ++t) {
            product.join(acc[p][t], sums[p][t], panel_of(p), (4 * record + g) / Format::blocks, first_row + t * kTile, rows);
            sums[p][t] = {};
          }
      }
    }
    if (kShares && record + 1 < records) inputs.store(shared + (record + 1) % 2 * Stage::kWords);
    if (kShares) sync_shared();
  }
#pragma unroll
  for (int p = 0; p < kF8Panels; ++p) {
    if constexpr (Format::blocks == 0)
#pragma unroll
      for (int t = 0; t < kF8Tiles; ++t)
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          const int64_t row = first_row + t * kTile + row_of_b(v);
          acc[p][t][v] = product.result(sums[p][t].v[v], row < rows ? row : rows - 1, panel_of(p) * kPanel + row_of_a(v));
        }
    finish_panel(a, reinterpret_cast<float*>(shared) + wave() * kStaged<kF8Tiles>, acc[p], first_panel + p, first_row, rows);
  }
}

// The scaled products of CDNA 4 where there are some.
template <class Format>
OCTAVO_GPU_FN void linear_small_few(const Step& step, const LinearArgs& a) {
#if defined(__gfx950__)
  if constexpr (Format::is_mx) return linear_mx_few<Format>(step, a);
  else
#endif
    linear_f8_few<Format>(step, a);
}
template <class Format>
OCTAVO_GPU_FN void linear_small_wide(const Step& step, const LinearArgs& a) {
#if defined(__gfx950__)
  if constexpr (Format::is_mx) return linear_mx_wide<Format, kF8Panels, kF8Tiles>(step, a);
  else
#endif
    linear_f8_wide<Format>(step, a);
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR_F8_MMA(kind, Format)                                                                             \
  OCTAVO_KERNEL(linear_##kind, mmafast, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kTile, octavo::gpu::kPanel) {   \
    octavo::gpu::linear_small_few<octavo::gpu::Format>(*step_, a);                                                        \
  }                                                                                                                    \
  OCTAVO_KERNEL(linear_##kind, mmafastwide, Linear, octavo::gpu::kMmaThreads, octavo::gpu::kF8Tiles * octavo::gpu::kTile, \
                octavo::gpu::kMmaWaves * octavo::gpu::kF8Panels * octavo::gpu::kPanel) {                               \
    octavo::gpu::linear_small_wide<octavo::gpu::Format>(*step_, a);                                                       \
  }
OCTAVO_LINEAR_F8_MMA(f8row, F8Row)
OCTAVO_LINEAR_F8_MMA(f8g128, F8G128)
OCTAVO_LINEAR_F8_MMA(mxfp8, MxF8)
OCTAVO_LINEAR_F8_MMA(mxfp4, MxF4)

#endif
