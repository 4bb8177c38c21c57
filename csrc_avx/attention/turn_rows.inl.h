// Eight rows turned into columns, for varlen_attention.
#pragma once
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// to[column * ld_to + row] = from[row * ld + column] for `columns` columns of eight rows.
inline void turn_rows(const float* from, int64_t ld, int64_t columns, float* to, int64_t ld_to) {
  int64_t c = 0;
#if defined(__AVX2__)
  for (; c + 8 <= columns; c += 8) {
    __m256 x[8], y[8];
    for (int i = 0; i < 8; ++i) x[i] = _mm256_loadu_ps(from + i * ld + c);
    for (int i = 0; i < 8; i += 2) {  // pairs of rows
      y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {  // fours, in each half
      x[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
      x[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xEE);
      x[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
      x[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(to + (c + i) * ld_to, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
      _mm256_storeu_ps(to + (c + i + 4) * ld_to, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    }
  }
#endif
  for (; c < columns; ++c)
    for (int i = 0; i < 8; ++i) to[c * ld_to + i] = from[i * ld + c];
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
