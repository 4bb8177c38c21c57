// pack_<format>: a tensor as its checkpoint stores it -> the layout of gpu/packed.h. A thread writes a unit of 8 inputs, or the
// scales of a group; panels' missing outputs and inputs stay the zeros that the memory came with.
#pragma once

#include "contract/linear.h"
#include "gpu/gguf_codes.inl.h"
#include "gpu/packed.h"
#include "gpu/rows.inl.h"
#include "vec/fp8.h"

namespace octavo::gpu {

OCTAVO_GPU_FN bool is_finite(float x) { return x - x == 0.0f; }
OCTAVO_GPU_FN void store_half(uint8_t* area, int64_t entry, uint16_t half, const PackArgs& a) {
  reinterpret_cast<uint16_t*>(area)[entry] = half;
  if ((half & 0x7C00) == 0x7C00) *a.bad = 1;
}

// Dense: bits as they are. `exponent`: the bits that are all set in infinities and NaN.
template <class T, T exponent>
OCTAVO_GPU_FN void pack_dense(const PackArgs& a) {
  const int64_t records = ceil_div(a.k, kDenseRecord);
  each_element(a.n, a.k, [&](int64_t row, int64_t k) {
    const uint8_t* from = static_cast<const uint8_t*>(a.source) + (a.transposed ? k : row) * a.row_bytes;
    const T bits = reinterpret_cast<const T*>(from)[a.transposed ? row : k];
    if ((bits & exponent) == exponent) *a.bad = 1;
    const int64_t out = a.first_row + row;
    static_cast<T*>(a.packed)[out / kPanel * records * kDenseRecord * kPanel + dense_at(k, out % kPanel)] = bits;
  });
}

// Blocks of 32: `zero` is added so that codes of 4 bits are none below 0.
template <class Gguf, class Codes, int zero>
OCTAVO_GPU_FN void pack_g32(const PackArgs& a) {
  const Layout<Codes> lay(a.total_n, a.k, 32);
  uint8_t* packed = static_cast<uint8_t*>(a.packed);
  each_element(a.n, a.k / kUnit, [&](int64_t row, int64_t unit) {
    const int64_t out = a.first_row + row, k = unit * kUnit, g = k / 32;
    const uint8_t* b = static_cast<const uint8_t*>(a.source) + row * a.row_bytes + g * Gguf::kBytes;
    int codes[kUnit];
    for (int i = 0; i < kUnit; ++i) codes[i] = Gguf::code(b, static_cast<int>(k % 32) + i) + zero;
    Codes::store(packed + lay.panel(out / kPanel) + Codes::unit_at(k, out % kPanel), codes);
    if (k % 32) return;
    const int64_t entry = lay.entry(out / kPanel, g, out % kPanel);
    store_half(packed + lay.scales(), entry, Gguf::d(b), a);
    if (Gguf::kMin) store_half(packed + lay.scales() + 2 * lay.entries(), entry, Gguf::m(b), a);
  });
}

template <class Gguf, class Codes>
OCTAVO_GPU_FN void pack_k256(const PackArgs& a) {
  const Layout<Codes> lay(a.total_n, a.k, 256);
  uint8_t* packed = static_cast<uint8_t*>(a.packed);
  each_element(a.n, a.k / kUnit, [&](int64_t row, int64_t unit) {
    const int64_t out = a.first_row + row, k = unit * kUnit, g = k / 256;
    const uint8_t* b = static_cast<const uint8_t*>(a.source) + row * a.row_bytes + g * Gguf::kBytes;
    int codes[kUnit];
    for (int i = 0; i < kUnit; ++i) codes[i] = Gguf::code(b, static_cast<int>(k % 256) + i);
    Codes::store(packed + lay.panel(out / kPanel) + Codes::unit_at(k, out % kPanel), codes);
    if (k % 256) return;
    const int64_t entry = lay.entry(out / kPanel, g, out % kPanel);
    uint8_t* d = packed + lay.scales();
    store_half(d, entry, Gguf::d(b), a);
    if (Gguf::kMin) store_half(d + 2 * lay.entries(), entry, Gguf::m(b), a);
    uint8_t* subs = d + 4 * lay.entries();
    for (int s = 0; s < 256 / Gguf::kGroup; ++s) {
      subs[entry * 16 + s] = static_cast<uint8_t>(Gguf::sub_scale(b, s));
      subs[(lay.entries() + entry) * 16 + s] = static_cast<uint8_t>(Gguf::sub_min(b, s));
    }
  });
}

OCTAVO_GPU_FN float scale_at(const PackArgs& a, int64_t i) {
  enum { kBF16 = 8, kF16 = 16 };
  if (a.flags & kBF16) return vec::float_of_bf16(static_cast<const uint16_t*>(a.scales)[i]);
  if (a.flags & kF16) return vec::float_of_f16(static_cast<const uint16_t*>(a.scales)[i]);
  return static_cast<const float*>(a.scales)[i];
}

// Scales apart: int8 rows with one scale each, or two codes a byte (input 2i low) with a scale, perhaps a zero point, per group.
template <class Codes>
OCTAVO_GPU_FN void pack_apart(const PackArgs& a, int64_t group) {
  constexpr bool is4 = Codes::kRecordBytes == Codes4::kRecordBytes;
  const Layout<Codes> lay(a.total_n, a.k, group);
  uint8_t* packed = static_cast<uint8_t*>(a.packed);
  each_element(a.n, ceil_div(a.k, kUnit), [&](int64_t row, int64_t unit) {
    const int64_t out = a.first_row + row, k = unit * kUnit, g = k / group;
    const uint8_t* from = static_cast<const uint8_t*>(a.source) + row * a.row_bytes;
    int codes[kUnit];
    for (int i = 0; i < kUnit; ++i) {
      const int64_t at = k + i;
      codes[i] = at >= a.k ? 0 : is4 ? from[at / 2] >> (at % 2 * 4) & 15 : static_cast<int8_t>(from[at]);
    }
    Codes::store(packed + lay.panel(out / kPanel) + Codes::unit_at(k, out % kPanel), codes);
    if (k % group) return;
    const int64_t entry = lay.entry(out / kPanel, g, out % kPanel);
    const float s = scale_at(a, row * a.groups + g);
    reinterpret_cast<float*>(packed + lay.scales())[entry] = s;
    if (!is_finite(s)) *a.bad = 1;
    if (is4) (packed + lay.scales() + 4 * lay.entries())[entry] = a.zeros ? a.zeros[row * a.groups + g] : static_cast<uint8_t>(8);
  });
}

// E4M3 codes with scales apart: float32 or, with `is_mx`, powers of two as E8M0. No code is -0 (see prepare.inl.h, f8_code).
template <bool is_mx>
OCTAVO_GPU_FN void pack_f8(const PackArgs& a, int64_t group) {
  const Layout<Codes8> lay(a.total_n, a.k, group);
  uint8_t* packed = static_cast<uint8_t*>(a.packed);
  each_element(a.n, ceil_div(a.k, kUnit), [&](int64_t row, int64_t unit) {
    const int64_t out = a.first_row + row, k = unit * kUnit, g = k / group;
    const uint8_t* from = static_cast<const uint8_t*>(a.source) + row * a.row_bytes;
    int codes[kUnit];
    for (int i = 0; i < kUnit; ++i) {
      codes[i] = k + i < a.k ? vec::fnuz_of(from[k + i]) : 0;
      if ((codes[i] & 0x7F) == 0x7F) *a.bad = 1;
    }
    Codes8::store(packed + lay.panel(out / kPanel) + Codes8::unit_at(k, out % kPanel), codes);
    if (k % group) return;
    const int64_t entry = lay.entry(out / kPanel, g, out % kPanel);
    if constexpr (is_mx) {
      const uint8_t s = static_cast<const uint8_t*>(a.scales)[row * a.groups + g];
      packed[lay.scales() + entry] = s;
      if (s == 255) *a.bad = 1;
    } else {
      const float s = scale_at(a, row * a.groups + g);
      reinterpret_cast<float*>(packed + lay.scales())[entry] = s;
      if (!is_finite(s)) *a.bad = 1;
    }
  });
}

// GGUF's blocks: a scale byte, and 16 bytes of which byte j holds inputs j and j + 16.
OCTAVO_GPU_FN void pack_mxfp4(const PackArgs& a) {
  const Layout<Codes4> lay(a.total_n, a.k, 32);
  uint8_t* packed = static_cast<uint8_t*>(a.packed);
  each_element(a.n, a.k / kUnit, [&](int64_t row, int64_t unit) {
    const int64_t out = a.first_row + row, k = unit * kUnit, g = k / 32;
    const uint8_t* block = static_cast<const uint8_t*>(a.source) + row * a.row_bytes + g * 17;
    int codes[kUnit];
    for (int i = 0; i < kUnit; ++i) {
      const int at = static_cast<int>(k % 32) + i, code = block[1 + at % 16] >> at / 16 * 4 & 15;
      codes[i] = code == 8 ? 0 : code;
    }
    Codes4::store(packed + lay.panel(out / kPanel) + Codes4::unit_at(k, out % kPanel), codes);
    if (k % 32) return;
    packed[lay.scales() + lay.entry(out / kPanel, g, out % kPanel)] = block[0];
    if (block[0] == 255) *a.bad = 1;
  });
}

}  // namespace octavo::gpu

#define OCTAVO_PACK(form, ...) \
  OCTAVO_KERNEL(pack_##form, simt, Pack, 256, 1, 256) { octavo::gpu::__VA_ARGS__; }
OCTAVO_PACK(f32, pack_dense<uint32_t, 0x7F800000u>(a))
OCTAVO_PACK(f16, pack_dense<uint16_t, 0x7C00>(a))
OCTAVO_PACK(bf16, pack_dense<uint16_t, 0x7F80>(a))
OCTAVO_PACK(q4_0, pack_g32<octavo::gpu::Q4_0, octavo::gpu::Codes4, 8>(a))
OCTAVO_PACK(q4_1, pack_g32<octavo::gpu::Q4_1, octavo::gpu::Codes4, 0>(a))
OCTAVO_PACK(q5_0, pack_g32<octavo::gpu::Q5_0, octavo::gpu::Codes8, 0>(a))
OCTAVO_PACK(q5_1, pack_g32<octavo::gpu::Q5_1, octavo::gpu::Codes8, 0>(a))
OCTAVO_PACK(q8_0, pack_g32<octavo::gpu::Q8_0, octavo::gpu::Codes8, 0>(a))
OCTAVO_PACK(q2_k, pack_k256<octavo::gpu::Q2K, octavo::gpu::Codes4>(a))
OCTAVO_PACK(q3_k, pack_k256<octavo::gpu::Q3K, octavo::gpu::Codes8>(a))
OCTAVO_PACK(q4_k, pack_k256<octavo::gpu::Q4K, octavo::gpu::Codes4>(a))
OCTAVO_PACK(q5_k, pack_k256<octavo::gpu::Q5K, octavo::gpu::Codes8>(a))
OCTAVO_PACK(q6_k, pack_k256<octavo::gpu::Q6K, octavo::gpu::Codes8>(a))
OCTAVO_PACK(w8a8, pack_apart<octavo::gpu::Runs8>(a, a.k))
OCTAVO_PACK(i4, pack_apart<octavo::gpu::Codes4>(a, octavo::gpu::apart_group(a.flags)))
OCTAVO_PACK(f8row, pack_f8<false>(a, a.k))
OCTAVO_PACK(f8g128, pack_f8<false>(a, 128))
OCTAVO_PACK(mxfp8, pack_f8<true>(a, 32))
OCTAVO_PACK(mxfp4, pack_mxfp4(a))
