// linear_{f8row,f8g128,mxfp8,mxfp4} on the plain arithmetic units, with the bits of the reference: dot32 of codes per block of 32
// inputs, blocks joined in order. The tiles are those of linear.inl.h; each part of a wave takes blocks of a record of its own.
#pragma once

#include "gpu/f8.h"
#include "gpu/linear.inl.h"

namespace octavo::gpu {

template <class Format>
OCTAVO_GPU_FN void linear_f8(const Step& step, const LinearArgs& a) {
  using Codes = typename Format::Codes;
  const Tile tile(step, a);
  if (tile.is_empty(a)) return;
  const Layout<Codes> lay(a.n, a.k, Format::group(a.k));
  const uint8_t* weight = static_cast<const uint8_t*>(a.weight);
  float acc[kRowsAtOnce] = {}, p[kRowsAtOnce] = {};
  for (int64_t rec = 0; rec < lay.records; ++rec) {
    const uint8_t* record = weight + lay.panel(tile.panel) + rec * Codes::kRecordBytes;
    float sums[4 / kParts][kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < 4 / kParts; ++i) {
      const int block = tile.part + i * kParts;
      float even[kRowsAtOnce] = {}, odd[kRowsAtOnce] = {};
      for (int q = 0; q < 4; ++q) {
        int32_t words[2];
        Format::unit(record, block, q, tile.out, words);
#pragma unroll
        for (int at = 0; at < kUnit; at += 2) {
          const uint32_t two = static_cast<uint32_t>(words[at / 4]) >> 8 * (at % 4);
          const float w0 = Format::number(static_cast<uint8_t>(two)), w1 = Format::number(static_cast<uint8_t>(two >> 8));
          for (int r = 0; r < kRowsAtOnce; ++r) {
            const uint8_t* x = static_cast<const uint8_t*>(a.x) + tile.row(r) * a.ldx + rec * kCodesRecord + 32 * block + q * kUnit + at;
            even[r] = V::fma(vec::E4M3FN::decode(x[0]), w0, even[r]);
            odd[r] = V::fma(vec::E4M3FN::decode(x[1]), w1, odd[r]);
          }
        }
      }
      for (int r = 0; r < kRowsAtOnce; ++r) sums[i][r] = even[r] + odd[r];
    }
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const int64_t at = 4 * rec + block;
      for (int r = 0; r < kRowsAtOnce; ++r) p[r] = p[r] + shuffle(sums[block / kParts][r], block % kParts * kPanel + tile.out);
      if constexpr (Format::blocks != 0) {
        if ((block + 1) % Format::blocks) continue;
        const int64_t g = at / Format::blocks;
        if (g >= lay.groups) continue;
        for (int r = 0; r < kRowsAtOnce; ++r) {
          acc[r] = join_f8<Format>(acc[r], p[r], weight + lay.scales(), lay.entry(tile.panel, g, tile.out), a.scales[tile.row(r) * a.lds + g]);
          p[r] = 0.0f;
        }
      }
    }
  }
  if constexpr (Format::blocks == 0) {
    const float scale = reinterpret_cast<const float*>(weight + lay.scales())[lay.entry(tile.panel, 0, tile.out)];
    for (int r = 0; r < kRowsAtOnce; ++r) acc[r] = p[r] * (a.scales[tile.row(r) * a.lds] * scale);
  }
  tile.write(a, acc);
}

}  // namespace octavo::gpu

#define OCTAVO_LINEAR_F8(kind, Format)                                                                                 \
  OCTAVO_KERNEL(linear_##kind, simt, Linear, octavo::gpu::kLinearThreads, octavo::gpu::kRowsAtOnce, 16 * octavo::gpu::kLinearWaves) { \
    octavo::gpu::linear_f8<octavo::gpu::Format>(*step_, a);                                                            \
  }
OCTAVO_LINEAR_F8(f8row, F8Row)
OCTAVO_LINEAR_F8(f8g128, F8G128)
OCTAVO_LINEAR_F8(mxfp8, MxF8)
OCTAVO_LINEAR_F8(mxfp4, MxF4)
