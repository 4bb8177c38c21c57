// The GGUF block formats taken apart into exact integers and float16 fields; shared by packing and row look-up.
//
// A format is a struct: kInputs per block, kBytes, kGroup inputs per sub-scale, and `unpack`. Codes come out with their zero
// point taken off, so a weight is d * code [+ m] (blocks of 32) or (d * sub_scale) * code [- dmin * sub_min] (blocks of 256).
// Loops are plain so that a compiler vectorises them; the twin is quant/<format>.py.
// Source: block structures of ggml (github.com/ggml-org/ggml, docs/gguf.md).
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_ISA_NS {

// One block. sub_scales and sub_mins hold 256 / kGroup entries; `m` is the minimum added, or dmin.
struct Block {
  alignas(64) int8_t codes[256];
  int8_t sub_scales[16];
  uint8_t sub_mins[16];
  uint16_t d, m;  // float16 bits
};

inline uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

inline void nibbles(const uint8_t* q, int8_t* low, int8_t* high, int n) {
  for (int i = 0; i < n; ++i) low[i] = static_cast<int8_t>(q[i] & 15);
  for (int i = 0; i < n; ++i) high[i] = static_cast<int8_t>(q[i] >> 4);
}

inline void shift_codes(int8_t* codes, int n, int zero) {
  for (int i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(codes[i] - zero);
}

// Bit i of four bytes is worth 16 on code i: eight bits are spread over the bytes of a word at once (little-endian).
inline void add_fifth_bits(const uint8_t* high, int8_t* codes) {
  for (int byte = 0; byte < 4; ++byte) {
    const uint64_t one_each = (high[byte] * 0x0101010101010101ull) & 0x8040201008040201ull;   // byte i holds bit i or zero
    const uint64_t sixteens = ((one_each + 0x7F7F7F7F7F7F7F7Full) & 0x8080808080808080ull) >> 3;  // 16 where it is not zero
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * byte, 8);
    eight |= sixteens;
    std::memcpy(codes + 8 * byte, &eight, 8);
  }
}

// The 12-byte field of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima.
inline void scales_and_mins(const uint8_t* f, Block* out) {
  for (int i = 0; i < 4; ++i) {
    out->sub_scales[i] = static_cast<int8_t>(f[i] & 63);
    out->sub_mins[i] = static_cast<uint8_t>(f[4 + i] & 63);
    out->sub_scales[4 + i] = static_cast<int8_t>((f[8 + i] & 15) | (f[i] >> 6) << 4);
    out->sub_mins[4 + i] = static_cast<uint8_t>((f[8 + i] >> 4) | (f[4 + i] >> 6) << 4);
  }
}

// Two bits of 64 bytes: byte 32h + l holds inputs 128h + 32j + l at bit 2j.
inline void two_bits(const uint8_t* q, int8_t* codes, int shift_up, bool joins) {
  for (int h = 0; h < 2; ++h)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l) {
        int8_t* at = codes + 128 * h + 32 * j + l;
        const int bits = ((q[32 * h + l] >> (2 * j)) & 3) << shift_up;
        *at = static_cast<int8_t>(joins ? *at | bits : bits);
      }
}

struct GgufQ4_0 {
  static constexpr int kInputs = 32, kBytes = 18, kGroup = 32, kCodesAt = 2;
  static constexpr bool kMin = false;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    nibbles(b + 2, out->codes, out->codes + 16, 16);
    shift_codes(out->codes, 32, 8);
  }
};

struct GgufQ4_1 {
  static constexpr int kInputs = 32, kBytes = 20, kGroup = 32, kCodesAt = 4;
  static constexpr bool kMin = true;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    out->m = half_at(b + 2);
    nibbles(b + 4, out->codes, out->codes + 16, 16);
  }
};

struct GgufQ5_0 {
  static constexpr int kInputs = 32, kBytes = 22, kGroup = 32;
  static constexpr bool kMin = false;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    nibbles(b + 6, out->codes, out->codes + 16, 16);
    add_fifth_bits(b + 2, out->codes);
    shift_codes(out->codes, 32, 16);
  }
};

struct GgufQ5_1 {
  static constexpr int kInputs = 32, kBytes = 24, kGroup = 32;
  static constexpr bool kMin = true;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    out->m = half_at(b + 2);
    nibbles(b + 8, out->codes, out->codes + 16, 16);
    add_fifth_bits(b + 4, out->codes);
  }
};

struct GgufQ8_0 {
  static constexpr int kInputs = 32, kBytes = 34, kGroup = 32;
  static constexpr bool kMin = false;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    std::memcpy(out->codes, b + 2, 32);
  }
};

struct GgufQ2_K {
  static constexpr int kInputs = 256, kBytes = 84, kGroup = 16;
  static constexpr bool kMin = true;
  static void unpack(const uint8_t* b, Block* out) {
    for (int i = 0; i < 16; ++i) {
      out->sub_scales[i] = static_cast<int8_t>(b[i] & 15);
      out->sub_mins[i] = static_cast<uint8_t>(b[i] >> 4);
    }
    two_bits(b + 16, out->codes, 0, false);
    out->d = half_at(b + 80);
    out->m = half_at(b + 82);
  }
};

struct GgufQ3_K {
  static constexpr int kInputs = 256, kBytes = 110, kGroup = 16;
  static constexpr bool kMin = false;
  static void unpack(const uint8_t* b, Block* out) {
    two_bits(b + 32, out->codes, 0, false);
    for (int s = 0; s < 8; ++s)  // a set bit of the mask takes nothing off, a clear one takes 4
      for (int l = 0; l < 32; ++l)
        out->codes[32 * s + l] = static_cast<int8_t>(out->codes[32 * s + l] + (((b[l] >> s) & 1) << 2) - 4);
    const uint8_t* f = b + 96;
    for (int i = 0; i < 16; ++i) {
      const int low = i < 8 ? f[i] & 15 : f[i - 8] >> 4;
      out->sub_scales[i] = static_cast<int8_t>((low | ((f[8 + i % 4] >> (2 * (i / 4))) & 3) << 4) - 32);
    }
    out->d = half_at(b + 108);
  }
};

struct GgufQ4_K {
  static constexpr int kInputs = 256, kBytes = 144, kGroup = 32, kCodesAt = 16;
  static constexpr bool kMin = true;
  static void unpack_scales(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    out->m = half_at(b + 2);
    scales_and_mins(b + 4, out);
  }
  static void unpack(const uint8_t* b, Block* out) {
    unpack_scales(b, out);
    for (int j = 0; j < 4; ++j) nibbles(b + 16 + 32 * j, out->codes + 64 * j, out->codes + 64 * j + 32, 32);
  }
};

struct GgufQ5_K {
  static constexpr int kInputs = 256, kBytes = 176, kGroup = 32;
  static constexpr bool kMin = true;
  static void unpack(const uint8_t* b, Block* out) {
    out->d = half_at(b);
    out->m = half_at(b + 2);
    scales_and_mins(b + 4, out);
    for (int j = 0; j < 4; ++j) nibbles(b + 48 + 32 * j, out->codes + 64 * j, out->codes + 64 * j + 32, 32);
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l)
        out->codes[32 * s + l] = static_cast<int8_t>(out->codes[32 * s + l] | ((b[16 + l] >> s) & 1) << 4);
  }
};

struct GgufQ6_K {
  static constexpr int kInputs = 256, kBytes = 210, kGroup = 16;
  static constexpr bool kMin = false;
  static void unpack(const uint8_t* b, Block* out) {
    for (int h = 0; h < 2; ++h) nibbles(b + 64 * h, out->codes + 128 * h, out->codes + 128 * h + 64, 64);
    two_bits(b + 128, out->codes, 4, true);
    shift_codes(out->codes, 256, 32);
    std::memcpy(out->sub_scales, b + 192, 16);
    out->d = half_at(b + 208);
  }
};

}  // namespace octavo::OCTAVO_ISA_NS
