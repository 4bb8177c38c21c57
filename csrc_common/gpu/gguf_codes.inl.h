// Single values of the GGUF block formats, for threads that each want another one. The twin of packed/gguf_blocks.inl.h.
//
// A format gives kInputs of a block, kBytes, kGroup inputs per sub-scale, kMin (is there a minimum), `code(b, j)` with its zero
// point taken off, `d(b)`, `m(b)` (the minimum added, or dmin), `sub_scale(b, s)` and `sub_min(b, s)`. Bytes need no alignment.
// Source: block structures of ggml (github.com/ggml-org/ggml, docs/gguf.md).
#pragma once

#include "gpu/shim.h"

namespace octavo::gpu {

OCTAVO_GPU_FN uint16_t half_at(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
OCTAVO_GPU_FN int nibble(const uint8_t* q, int j) { return j < 16 ? q[j] & 15 : q[j - 16] >> 4; }
OCTAVO_GPU_FN int fifth_bit(const uint8_t* high, int j) { return (high[j / 8] >> (j % 8) & 1) << 4; }

template <int bytes, bool has_min>
struct Block32 {
  static constexpr int kInputs = 32, kBytes = bytes, kGroup = 32;
  static constexpr bool kMin = has_min;
  static OCTAVO_GPU_FN uint16_t d(const uint8_t* b) { return half_at(b); }
  static OCTAVO_GPU_FN uint16_t m(const uint8_t* b) { return half_at(b + 2); }
  static OCTAVO_GPU_FN int sub_scale(const uint8_t*, int) { return 1; }
  static OCTAVO_GPU_FN int sub_min(const uint8_t*, int) { return 1; }
};
struct Q4_0 : Block32<18, false> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return nibble(b + 2, j) - 8; }
};
struct Q4_1 : Block32<20, true> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return nibble(b + 4, j); }
};
struct Q5_0 : Block32<22, false> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return (nibble(b + 6, j) | fifth_bit(b + 2, j)) - 16; }
};
struct Q5_1 : Block32<24, true> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return nibble(b + 8, j) | fifth_bit(b + 4, j); }
};
struct Q8_0 : Block32<34, false> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return static_cast<int8_t>(b[2 + j]); }
};

// Two bits of input j of 256 in 64 bytes: byte 32 (j / 128) + j % 32, bits 2 (j / 32 % 4).
OCTAVO_GPU_FN int two_bits(const uint8_t* q, int j) { return q[32 * (j / 128) + j % 32] >> (2 * (j / 32 % 4)) & 3; }

template <int bytes, int group, bool has_min>
struct Block256 {
  static constexpr int kInputs = 256, kBytes = bytes, kGroup = group;
  static constexpr bool kMin = has_min;
};
struct Q2K : Block256<84, 16, true> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return two_bits(b + 16, j); }
  static OCTAVO_GPU_FN uint16_t d(const uint8_t* b) { return half_at(b + 80); }
  static OCTAVO_GPU_FN uint16_t m(const uint8_t* b) { return half_at(b + 82); }
  static OCTAVO_GPU_FN int sub_scale(const uint8_t* b, int s) { return b[s] & 15; }
  static OCTAVO_GPU_FN int sub_min(const uint8_t* b, int s) { return b[s] >> 4; }
};
struct Q3K : Block256<110, 16, false> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return two_bits(b + 32, j) + (b[j % 32] >> (j / 32) & 1) * 4 - 4; }
  static OCTAVO_GPU_FN uint16_t d(const uint8_t* b) { return half_at(b + 108); }
  static OCTAVO_GPU_FN uint16_t m(const uint8_t*) { return 0; }
  static OCTAVO_GPU_FN int sub_scale(const uint8_t* b, int s) {
    const int low = s < 8 ? b[96 + s] & 15 : b[96 + s - 8] >> 4;
    return (low | (b[104 + s % 4] >> (2 * (s / 4)) & 3) << 4) - 32;
  }
  static OCTAVO_GPU_FN int sub_min(const uint8_t*, int) { return 0; }
};

// The 12-byte field of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima.
template <int bytes>
struct BlockOfScales : Block256<bytes, 32, true> {
  static OCTAVO_GPU_FN uint16_t d(const uint8_t* b) { return half_at(b); }
  static OCTAVO_GPU_FN uint16_t m(const uint8_t* b) { return half_at(b + 2); }
  static OCTAVO_GPU_FN int sub_scale(const uint8_t* b, int s) {
    const uint8_t* f = b + 4;
    return s < 4 ? f[s] & 63 : (f[s + 4] & 15) | f[s - 4] >> 6 << 4;
  }
  static OCTAVO_GPU_FN int sub_min(const uint8_t* b, int s) {
    const uint8_t* f = b + 4;
    return s < 4 ? f[s + 4] & 63 : f[s + 4] >> 4 | f[s] >> 6 << 4;
  }
};
OCTAVO_GPU_FN int nibble_of_64(const uint8_t* q, int j) { return q[32 * (j / 64) + j % 32] >> (j / 32 % 2 * 4) & 15; }
struct Q4K : BlockOfScales<144> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) { return nibble_of_64(b + 16, j); }
};
struct Q5K : BlockOfScales<176> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) {
    return nibble_of_64(b + 48, j) | (b[16 + j % 32] >> (j / 32) & 1) << 4;
  }
};
struct Q6K : Block256<210, 16, false> {
  static OCTAVO_GPU_FN int code(const uint8_t* b, int j) {
    const int quarter = j / 32 % 4, l = j % 32, h = j / 128;
    const int low = b[64 * h + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
    return (low | (b[128 + 32 * h + l] >> (2 * quarter) & 3) << 4) - 32;
  }
  static OCTAVO_GPU_FN uint16_t d(const uint8_t* b) { return half_at(b + 208); }
  static OCTAVO_GPU_FN uint16_t m(const uint8_t*) { return 0; }
  static OCTAVO_GPU_FN int sub_scale(const uint8_t* b, int s) { return static_cast<int8_t>(b[192 + s]); }
  static OCTAVO_GPU_FN int sub_min(const uint8_t*, int) { return 0; }
};

}  // namespace octavo::gpu
