// gpu/mma.h on the host: lanes tell each other their operands. Waves of 64 hold what MFMA of AMD holds, waves of 32 what mma.sync
// of NVIDIA does. Products of floats are added in order of inputs, by fma.
#pragma once

#define OCTAVO_HAS_MMA 1

#include "vec/fp8.h"

namespace octavo::gpu {

#if OCTAVO_WAVE == 64
constexpr int kUnits = 1, kValues = 4;
inline int unit_row_of(int lane, int) { return lane % 16; }
inline int unit_q_of(int lane, int) { return lane / 16; }
inline int row_of_a(int i) { return thread() % kWave / 16 * 4 + i; }
inline int row_of_b(int) { return thread() % 16; }
#else
constexpr int kUnits = 2, kValues = 8;
inline int unit_row_of(int lane, int u) { return lane / 4 + 8 * u; }
inline int unit_q_of(int lane, int) { return lane % 4; }
inline int row_of_a(int i) { return thread() % kWave / 4 + i % 4 / 2 * 8; }
inline int row_of_b(int i) { return i / 4 * 8 + thread() % 4 * 2 + i % 2; }
#endif
inline int unit_row(int u) { return unit_row_of(thread() % kWave, u); }
inline int unit_q(int u) { return unit_q_of(thread() % kWave, u); }

#if OCTAVO_WAVE == 64
#define OCTAVO_HAS_F8 1
constexpr float kF8Product = 4.0f;  // codes are read as CDNA 3 reads them
#else
constexpr float kF8Product = 1.0f;
#endif

struct OperandBF16 {
  int32_t w[kUnits][4];
};
struct OperandF16 {
  int32_t w[kUnits][4];
};
struct OperandI8 {
  int32_t w[kUnits][2];
};
struct OperandF8 {
  int32_t w[kUnits][2];
};
struct SumsF32 {
  float v[kValues] = {};
};
struct SumsI32 {
  int32_t v[kValues] = {};
};

// Everybody's words, [kWave][count]; valid until this lane's next but one exchange.
const int32_t* exchange(const int32_t* words, int count);

// rows[2][16][words of 32 inputs] of A and B, from what lanes hold.
template <int words, class Operand>
inline void whole_operands(const Operand& a, const Operand& b, int32_t (&rows)[2][16][4 * words]) {
  constexpr int kEach = kUnits * words;
  int32_t mine[2 * kEach];
  __builtin_memcpy(mine, a.w, sizeof a.w);
  __builtin_memcpy(mine + kEach, b.w, sizeof b.w);
  const int32_t* all = exchange(mine, 2 * kEach);
  for (int which = 0; which < 2; ++which)
    for (int l = 0; l < kWave; ++l)
      for (int u = 0; u < kUnits; ++u)
        for (int i = 0; i < words; ++i)
          rows[which][unit_row_of(l, u)][unit_q_of(l, u) * words + i] = all[l * 2 * kEach + which * kEach + u * words + i];
}

inline void mma(SumsF32& c, const OperandBF16& a, const OperandBF16& b) {
  int32_t rows[2][16][16];
  whole_operands<4>(a, b, rows);
  const auto value = [](const int32_t* words, int k) {
    return float_of_word(static_cast<int32_t>(static_cast<uint32_t>(words[k / 2]) >> (k % 2 * 16) << 16));
  };
  for (int i = 0; i < kValues; ++i)
    for (int k = 0; k < 32; ++k) c.v[i] = __builtin_fmaf(value(rows[0][row_of_a(i)], k), value(rows[1][row_of_b(i)], k), c.v[i]);
}
inline void mma(SumsF32& c, const OperandF16& a, const OperandF16& b) {
  int32_t rows[2][16][16];
  whole_operands<4>(a, b, rows);
  const auto value = [](const int32_t* words, int k) {
    return vec::float_of_f16(static_cast<uint16_t>(static_cast<uint32_t>(words[k / 2]) >> (k % 2 * 16)));
  };
  for (int i = 0; i < kValues; ++i)
    for (int k = 0; k < 32; ++k) c.v[i] = __builtin_fmaf(value(rows[0][row_of_a(i)], k), value(rows[1][row_of_b(i)], k), c.v[i]);
}
#if defined(OCTAVO_HAS_F8)
inline void mma(SumsF32& c, const OperandF8& a, const OperandF8& b) {
  int32_t rows[2][16][8];
  whole_operands<2>(a, b, rows);
  const auto value = [](const int32_t* words, int k) {
    return vec::E4M3FNUZ::decode(static_cast<uint8_t>(static_cast<uint32_t>(words[k / 4]) >> (k % 4 * 8)));
  };
  for (int i = 0; i < kValues; ++i)
    for (int k = 0; k < 32; ++k) c.v[i] = __builtin_fmaf(value(rows[0][row_of_a(i)], k), value(rows[1][row_of_b(i)], k), c.v[i]);
}
#endif
inline void mma(SumsI32& c, const OperandI8& a, const OperandI8& b) {
  int32_t rows[2][16][8];
  whole_operands<2>(a, b, rows);
  for (int i = 0; i < kValues; ++i)
    for (int word = 0; word < 8; ++word) c.v[i] = dot4(rows[0][row_of_a(i)][word], rows[1][row_of_b(i)][word], c.v[i]);
}

}  // namespace octavo::gpu
