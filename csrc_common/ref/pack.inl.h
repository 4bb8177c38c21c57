// pack_<format>: checkpoint rows -> panels of 16 outputs (packed/panels.h). One body for every level; plain loops.
//
// Inputs are padded with zeros to a multiple of 32. Work is shared out, and what is not finite noted, as pack_panels.inl.h says.
#pragma once
#include "packed/flips.h"
#include "packed/gguf_blocks.inl.h"
#include "ref/pack_panels.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Q4_K's 32 bytes of two sub-blocks (low nibbles: the first, high nibbles: the second) -> 16 bytes of each, byte t holding
// input t low and input 16 + t high. Eight bytes at a time.
inline void regroup_nibbles(const uint8_t* q, uint8_t* first, uint8_t* second) {
  constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0Full;
  for (int t = 0; t < 16; t += 8) {
    uint64_t a, b;
    std::memcpy(&a, q + t, 8);
    std::memcpy(&b, q + 16 + t, 8);
    const uint64_t low = (a & kLow) | (b & kLow) << 4, high = ((a >> 4) & kLow) | (b & ~kLow);
    std::memcpy(first + t, &low, 8);
    std::memcpy(second + t, &high, 8);
  }
}

// Q4_0 and Q4_1: a block's bytes already hold inputs t and 16 + t, so they only move.
template <class Gguf>
struct PackQ4g32 {
  using Source = Gguf;
  static constexpr PackedKind kKind = PackedKind::q4g32;
  static constexpr int32_t kFlags = Gguf::kMin ? kHasMin : kZero8;
  static bool lane(const uint8_t* block, uint8_t* record, int lane) {
    uint8_t codes[16];
    std::memcpy(codes, block + Gguf::kCodesAt, sizeof codes);
    if (!Gguf::kMin)
      for (uint8_t& pair : codes) pair ^= kNibbleFlip;
    scatter(record, lane, codes, 4);
    put_half(record + 256, lane, half_at(block));
    if (Gguf::kMin) put_half(record + 288, lane, half_at(block + 2));
    return is_bad_f16(half_at(block)) || (Gguf::kMin && is_bad_f16(half_at(block + 2)));
  }
};

struct PackQ8g32 {
  using Source = GgufQ8_0;
  static constexpr PackedKind kKind = PackedKind::q8g32;
  static constexpr int32_t kFlags = 0;
  static bool lane(const uint8_t* block, uint8_t* record, int lane) {
    Block b;
    Source::unpack(block, &b);
    scatter(record, lane, b.codes, 8);
    put_half(record + 512, lane, b.d);
    return is_bad_f16(b.d);
  }
};

struct PackQ4k {
  using Source = GgufQ4_K;
  static constexpr PackedKind kKind = PackedKind::q4k;
  static constexpr int32_t kFlags = kHasMin;
  static bool lane(const uint8_t* block, uint8_t* record, int lane) {
    Block b;
    Source::unpack_scales(block, &b);
    for (int sub = 0; sub < 8; sub += 2) {
      uint8_t first[16], second[16];
      regroup_nibbles(block + Source::kCodesAt + 16 * sub, first, second);
      scatter(record + 256 * sub, lane, first, 4);
      scatter(record + 256 * sub + 256, lane, second, 4);
    }
    for (int sub = 0; sub < 8; ++sub) {
      record[2048 + 16 * sub + lane] = static_cast<uint8_t>(b.sub_scales[sub]);
      record[2176 + 16 * sub + lane] = b.sub_mins[sub];
    }
    put_half(record + 2304, lane, b.d);
    put_half(record + 2336, lane, b.m);
    return is_bad_f16(b.d) || is_bad_f16(b.m);
  }
};

template <class Pack>
inline void pack_blocks(const void* raw, const Lane& lane) {
  using Source = typename Pack::Source;
  const auto& a = *static_cast<const PackArgs*>(raw);
  const int64_t bytes = record_bytes(Pack::kKind, Pack::kFlags), blocks = a.k / Source::kInputs;
  run_panels(a, lane, [&](int64_t panel, int low, int high, int64_t row, int zero_to) {
    alignas(16) static constexpr uint8_t kEmpty[256] = {};
    uint8_t* record = static_cast<uint8_t*>(a.packed) + panel * blocks * bytes;
    const uint8_t* source = static_cast<const uint8_t*>(a.source) + row * a.row_bytes;
    bool is_bad = false;
    for (int64_t b = 0; b < blocks; ++b, record += bytes) {
      for (int l = low; l < high; ++l) is_bad |= Pack::lane(source + (l - low) * a.row_bytes + b * Source::kBytes, record, l);
      for (int l = high; l < zero_to; ++l) Pack::lane(kEmpty, record, l);  // scales are zero, so the codes do not count
    }
    note_bad(a, is_bad);
  });
}

// Whether one of n words has an exponent of all ones: the largest magnitude, as an integer, tells.
template <class Word>
inline bool any_bad(const Word* words, int n, Word infinity) {
  constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
  Word top = 0;
  for (int i = 0; i < n; ++i) {
    const Word magnitude = words[i] & kMagnitude;
    top = magnitude > top ? magnitude : top;
  }
  return top >= infinity;
}

// A dense weight of `Word`s, moved as they are; `infinity`: the bits of an infinity. Pairs: neighbouring inputs share a dword.
template <class Word, bool pairs>
inline void pack_dense(const void* raw, const Lane& lane, PackedKind kind, Word infinity) {
  const auto& a = *static_cast<const PackArgs*>(raw);
  const int64_t bytes = record_bytes(kind, 0), blocks = round_up(a.k, 32) / 32;
  const auto at = [](int i, int l) { return pairs ? (i / 2 * 16 + l) * 2 + i % 2 : i * 16 + l; };
  run_panels(a, lane, [&](int64_t panel, int low, int high, int64_t row, int zero_to) {
    Word* record = reinterpret_cast<Word*>(static_cast<uint8_t*>(a.packed) + panel * blocks * bytes);
    const uint8_t* source = static_cast<const uint8_t*>(a.source);
    bool is_bad = false;
    for (int64_t b = 0; b < blocks; ++b, record += bytes / static_cast<int64_t>(sizeof(Word))) {
      const int count = a.k - 32 * b < 32 ? static_cast<int>(a.k - 32 * b) : 32;
      if (count < 32 || zero_to > high) {
        for (int i = 0; i < 32; ++i)
          for (int l = low; l < zero_to; ++l)
            if (i >= count || l >= high) record[at(i, l)] = 0;
      }
      if (a.transposed) {
        for (int i = 0; i < count; ++i) {
          Word line[16];
          std::memcpy(line, source + (32 * b + i) * a.row_bytes + row * static_cast<int64_t>(sizeof(Word)),
                      static_cast<size_t>(high - low) * sizeof(Word));
          is_bad |= any_bad<Word>(line, high - low, infinity);
          for (int l = low; l < high; ++l) record[at(i, l)] = line[l - low];
        }
        continue;
      }
      for (int l = low; l < high; ++l) {
        Word line[32];
        std::memcpy(line, source + (row + l - low) * a.row_bytes + 32 * b * static_cast<int64_t>(sizeof(Word)),
                    static_cast<size_t>(count) * sizeof(Word));
        is_bad |= any_bad<Word>(line, count, infinity);
        if (pairs && count == 32)
          scatter(reinterpret_cast<uint8_t*>(record), l, line, 16);
        else
          for (int i = 0; i < count; ++i) record[at(i, l)] = line[i];
      }
    }
    note_bad(a, is_bad);
  });
}

}  // namespace

void pack_bf16(const void* raw, const Step&, const Lane& lane) {
  pack_dense<uint16_t, true>(raw, lane, PackedKind::bf16, 0x7F80);
}
void pack_f16(const void* raw, const Step&, const Lane& lane) {
  pack_dense<uint16_t, false>(raw, lane, PackedKind::f16, 0x7C00);
}
void pack_f32(const void* raw, const Step&, const Lane& lane) {
  pack_dense<uint32_t, false>(raw, lane, PackedKind::f32, 0x7F800000u);
}
void pack_q4_0(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ4g32<GgufQ4_0>>(raw, lane); }
void pack_q4_1(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ4g32<GgufQ4_1>>(raw, lane); }
void pack_q8_0(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ8g32>(raw, lane); }
void pack_q4_k(const void* raw, const Step&, const Lane& lane) { pack_blocks<PackQ4k>(raw, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
