// linear_mxfp8 and linear_mxfp4 by the scaled products of CDNA 4: sixteen rows by sixteen of 128 inputs, E2M1 or E4M3 by E4M3, with the
// powers of two of each 32 inputs given beside. Records lie as everywhere (gpu/packed.h), four groups of 32 inputs in every lane,
// and the instruction wants a group in a lane: lanes 16 and 32 apart exchange registers.
//
// Lane l holds row l % 16. Its inputs are, of the 128: for E2M1 those of group l / 16; for E4M3 the 16 from 16 (l / 16) on and the 16
// from 64 + 16 (l / 16) on. Its scale is that of group l / 16 either way.
// Source: AMD's CDNA 4 ISA, "matrix instructions with scales"; LLVM's AMDGPU usage guide.
#pragma once

#include "gpu/f8.h"
#include "gpu/mma_inputs.h"

#if defined(__gfx950__)

namespace octavo::gpu {

struct OperandMx {
  int32_t w[8];  // E2M1: four of them
  int32_t scale;
};

OCTAVO_GPU_FN void swap32(int32_t& a, int32_t& b) {
  const auto both = __builtin_amdgcn_permlane32_swap(static_cast<uint32_t>(a), static_cast<uint32_t>(b), false, false);
  a = static_cast<int32_t>(both[0]), b = static_cast<int32_t>(both[1]);
}
OCTAVO_GPU_FN void swap16(int32_t& a, int32_t& b) {
  const auto both = __builtin_amdgcn_permlane16_swap(static_cast<uint32_t>(a), static_cast<uint32_t>(b), false, false);
  a = static_cast<int32_t>(both[0]), b = static_cast<int32_t>(both[1]);
}

// A lane's part of a record of codes: word j of four is of group j, unit l / 16 -> word j is of group l / 16, unit j.
OCTAVO_GPU_FN void mx_codes(OperandMx& to, const Codes4::Raw& raw) {
  for (int i = 0; i < 4; ++i) to.w[i] = raw.of4.w[i];
  for (int i = 0; i < 2; ++i) swap32(to.w[i], to.w[i + 2]);
  for (int i = 0; i < 4; i += 2) swap16(to.w[i], to.w[i + 1]);
  for (int i = 4; i < 8; ++i) to.w[i] = 0;
}
// Of E4M3, half by half: units l / 16 of two groups -> two neighbouring units of one.
OCTAVO_GPU_FN void mx_codes(OperandMx& to, const Codes8::Raw& raw) {
  for (int half = 0; half < 2; ++half) {
    int32_t* w = to.w + 4 * half;
    for (int i = 0; i < 4; ++i) w[i] = raw.half[half].w[i];
    for (int i = 0; i < 2; ++i) swap32(w[i], w[i + 2]);
    for (int i = 0; i < 2; ++i) swap16(w[i], w[i + 2]);
  }
}

// A power of two as the instruction takes it.
OCTAVO_GPU_FN int32_t mx_scale(float scale) { return static_cast<int32_t>(static_cast<uint32_t>(word_of_float(scale)) >> 23); }

// Those of a record's groups, for the rows of `tiles` tiles: [row][group].
template <int tiles>
struct MxScales {
  static constexpr int kWords = tiles * kTile * 4, kEach = kWords / kMmaThreads;
  static_assert(kEach * kMmaThreads == kWords);
  int32_t held[kEach];
  static OCTAVO_GPU_FN int place(int row, int group) { return 4 * row + group; }
  OCTAVO_GPU_FN void fetch(const LinearArgs& a, int64_t first_row, int64_t rows, int64_t record, int64_t groups) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread() + i * kMmaThreads;
      const int64_t row = first_row + at / 4 < rows ? first_row + at / 4 : rows - 1, g = 4 * record + at % 4;
      held[i] = mx_scale(a.scales[row * a.lds + (g < groups ? g : groups - 1)]);
    }
  }
  OCTAVO_GPU_FN void store(int32_t* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) shared[thread() + i * kMmaThreads] = held[i];
  }
};

template <class Format>
struct MxProduct {
  using Codes = typename Format::Codes;
  const LinearArgs& a;
  Layout<Codes> lay;
  const uint8_t* weight;
  OCTAVO_GPU_FN explicit MxProduct(const LinearArgs& args)
      : a(args), lay(args.n, args.k, 32), weight(static_cast<const uint8_t*>(args.weight)) {}
  // Groups beyond the last meet codes that are zero.
  OCTAVO_GPU_FN int64_t group(int64_t record) const {
    const int64_t g = 4 * record + lane() / 16;
    return g < lay.groups ? g : lay.groups - 1;
  }
  OCTAVO_GPU_FN void weights(OperandMx& to, int64_t panel, int64_t record) const {
    RecordUnits<Codes> codes;
    codes.fetch(weight + lay.panel(panel) + record * Codes::kRecordBytes);
    to.scale = (weight + lay.scales())[lay.entry(panel, group(record), lane() % 16)];
    mx_codes(to, codes.raw[0]);
  }
  OCTAVO_GPU_FN void inputs(OperandMx& to, int64_t first_row, int64_t rows, int64_t record) const {
    const int64_t row = first_row + lane() % 16 < rows ? first_row + lane() % 16 : rows - 1;
    const uint8_t* x = static_cast<const uint8_t*>(a.x) + row * a.ldx + record * kCodesRecord + 16 * (lane() / 16);
    to.scale = mx_scale(a.scales[row * a.lds + group(record)]);
    for (int half = 0; half < 2; ++half) run(to, half, *reinterpret_cast<const Words4*>(x + 64 * half));
  }
  // The same of a tile in shared memory.
  template <class Stage, class Scales>
  static OCTAVO_GPU_FN void inputs(OperandMx& to, const int32_t* shared, int tile) {
    const int row = tile * kTile + lane() % 16;
    to.scale = shared[Stage::kWords + Scales::place(row, lane() / 16)];
    for (int half = 0; half < 2; ++half)
      run(to, half, *reinterpret_cast<const Words4*>(shared + Stage::place(row, half, lane() / 16)));
  }
  // 16 inputs in the order in which codes lie in a unit: E2M1 inputs 0, 4, 1, 5, 2, 6, 3, 7.
  static OCTAVO_GPU_FN void run(OperandMx& to, int half, const Words4& from) {
    for (int i = 0; i < 4; i += 2) {
      int32_t* w = to.w + 4 * half + i;
      if constexpr (Format::is4) {
        w[0] = static_cast<int32_t>(__builtin_amdgcn_perm(from.w[i + 1], from.w[i], 0x05010400));
        w[1] = static_cast<int32_t>(__builtin_amdgcn_perm(from.w[i + 1], from.w[i], 0x07030602));
      } else {
        w[0] = from.w[i], w[1] = from.w[i + 1];
      }
    }
  }
  static OCTAVO_GPU_FN void multiply(SumsF32& c, const OperandMx& w, const OperandMx& x) {
    using F4 = float __attribute__((ext_vector_type(4)));
    using I8 = int __attribute__((ext_vector_type(8)));
    I8 first, second;
    for (int i = 0; i < 8; ++i) first[i] = w.w[i], second[i] = x.w[i];
    constexpr int kKind = Format::is4 ? 4 : 0;  // E2M1, E4M3
    c = bits_as<SumsF32>(__builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(first, second, bits_as<F4>(c), kKind, 0, 0, w.scale, 0, x.scale));
  }
};

template <class Format>
OCTAVO_GPU_FN void linear_mx_few(const Step& step, const LinearArgs& a) {
  constexpr int kAhead = 4;  // records whose loads are on their way together
  OCTAVO_SHARED(float, partial, kMmaWaves * kTile * (kTile + 1));
  const MxProduct<Format> product(a);
  const int64_t panel = block_y(), first_row = static_cast<int64_t>(block_x()) * kTile, rows = num_rows(a.rows, step);
  const int64_t records = product.lay.records;
  if (first_row >= rows) return;
  SumsF32 sums;
  int64_t record = wave();
  for (; record + (kAhead - 1) * kMmaWaves < records; record += kAhead * kMmaWaves) {
    OperandMx w[kAhead], x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      product.weights(w[i], panel, record + i * kMmaWaves);
      product.inputs(x[i], first_row, rows, record + i * kMmaWaves);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) product.multiply(sums, w[i], x[i]);
  }
  for (; record < records; record += kMmaWaves) {
    OperandMx w, x;
    product.weights(w, panel, record);
    product.inputs(x, first_row, rows, record);
    product.multiply(sums, w, x);
  }
  for (int v = 0; v < kValues; ++v) partial[(wave() * kTile + row_of_b(v)) * (kTile + 1) + row_of_a(v)] = sums.v[v];
  sync();
  for (int t = thread(); t < kTile * kPanel; t += kMmaThreads) {
    const int64_t row = first_row + t / kTile, out = panel * kPanel + t % kTile;
    if (row >= rows || out >= a.n) continue;
    float sum = 0.0f;
    for (int i = 0; i < kMmaWaves; ++i) sum = sum + partial[(i * kTile + t / kTile) * (kTile + 1) + t % kTile];
    finish(a, row, out, sum);
  }
}

// As many panels and tiles as gpu/linear_f8_mma.inl.h has: the table of kernels is one for all chips of a width of waves.
template <class Format, int panels_of, int tiles>
OCTAVO_GPU_FN void linear_mx_wide(const Step& step, const LinearArgs& a) {
  using Stage = UnitStage<tiles>;
  using Scales = MxScales<tiles>;
  constexpr int kBuffer = Stage::kWords + Scales::kWords, kOut = kMmaWaves * kStaged<tiles>;
  OCTAVO_SHARED(Words4, units, (2 * kBuffer > kOut ? 2 * kBuffer : kOut) / 4);
  int32_t* const shared = units[0].w;
  const MxProduct<Format> product(a);
  const int64_t first_panel = (static_cast<int64_t>(block_y()) * kMmaWaves + wave()) * panels_of, panels = product.lay.panels;
  const int64_t first_row = static_cast<int64_t>(block_x()) * tiles * kTile, rows = num_rows(a.rows, step);
  const int64_t records = product.lay.records;
  if (first_row >= rows) return;
  Stage inputs;
  Scales scales;
  const auto fetch = [&](int64_t record) {
    inputs.fetch(a, a.ldx, first_row, rows, record * kCodesRecord, record * kCodesRecord + 64);
    scales.fetch(a, first_row, rows, record, product.lay.groups);
  };
  const auto store = [&](int32_t* to) {
    inputs.store(to);
    scales.store(to + Stage::kWords);
  };
  fetch(0);
  store(shared);
  sync_shared();
  SumsF32 sums[panels_of][tiles];
  for (int64_t record = 0; record < records; ++record) {
    const bool is_more = record + 1 < records;
    if (is_more) fetch(record + 1);
    OperandMx w[panels_of];
#pragma unroll
    for (int p = 0; p < panels_of; ++p) product.weights(w[p], first_panel + p < panels ? first_panel + p : panels - 1, record);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      OperandMx x;
      product.template inputs<Stage, Scales>(x, shared + record % 2 * kBuffer, t);
#pragma unroll
      for (int p = 0; p < panels_of; ++p) product.multiply(sums[p][t], w[p], x);
    }
    if (is_more) store(shared + (record + 1) % 2 * kBuffer);
    sync_shared();
  }
#pragma unroll
  for (int p = 0; p < panels_of; ++p) {
    float values[tiles][kValues];
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int v = 0; v < kValues; ++v) values[t][v] = sums[p][t].v[v];
    finish_panel(a, reinterpret_cast<float*>(shared) + wave() * kStaged<tiles>, values, first_panel + p, first_row, rows);
  }
}

}  // namespace octavo::gpu

#endif
