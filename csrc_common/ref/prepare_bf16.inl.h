// prepare_bf16: float32 rows -> bfloat16, padded with zeros to a multiple of 32 (contract/linear.h). One body for every level, over the
// vector class V.
#pragma once
#include "contract/linear.h"
#include "packed/panels.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

constexpr int64_t kPiece = 2048;  // inputs of one unit of work

template <class Piece>
inline void run_pieces(const PrepareArgs& a, const Step& step, const Lane& lane, Piece&& piece) {
  const int64_t rows = num_rows(a.rows, step), pieces = round_up(a.k, kPiece) / kPiece, units = rows * pieces;
  if (units == 1) {  // one claim, and nothing left to ask for
    int64_t begin, end;
    if (lane.claim(1, 1, &begin, &end)) piece(0, 0, a.k);
    return;
  }
  for (int64_t begin, end; lane.claim(units, lane.worthwhile(units, a.k < kPiece ? a.k : kPiece), &begin, &end);)
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % pieces * kPiece;
      piece(unit / pieces, first, first + kPiece < a.k ? first + kPiece : a.k);
    }
}

}  // namespace

void prepare_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const PrepareArgs*>(raw);
  run_pieces(a, step, lane, [&](int64_t row, int64_t first, int64_t last) {
    const float* x = a.x + row * a.ldx;
    uint16_t* q = static_cast<uint16_t*>(a.q) + row * a.ldq;
    int64_t i = first;
#if defined(__aarch64__)
    for (; i + 32 <= last; i += 32) {
      uint16x8_t narrow[4];  // all before the first store: so stores are paired
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) narrow[n] = V::narrow_bf16(V::load(x + i + 8 * n), V::load(x + i + 8 * n + 4));
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) vst1q_u16(q + i + 8 * n, narrow[n]);
    }
#endif
#pragma GCC unroll 4
    for (; i + V::kLanes <= last; i += V::kLanes) V::store_bf16(q + i, V::load(x + i));
    if (i < last) V::store_bf16_n(q + i, V::load_n(x + i, static_cast<int>(last - i)), static_cast<int>(last - i));
    for (i = last; i < round_up(last, 32); ++i) q[i] = 0;
  });
}

}  // namespace octavo::OCTAVO_ISA_NS
