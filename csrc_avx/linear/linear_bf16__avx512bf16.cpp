// linear_bf16 at avx512bf16: dot32 by VDPBF16PS, two steps of a chain at a time.
//
// The instruction adds two products to a lane, rounding after each: first that of the high halves, then that of the low ones. Rows
// are staged in quads: inputs k .. k + 3 as the words (k + 2, k) and (k + 3, k + 1), low half first. Weights, packed in pairs
// (k, k + 1), are turned to such words once for the rows of a tile.
#include "linear/dense_rows.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline __m512bh word_at(const uint16_t* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof word);
  return (__m512bh)V::ibroadcast(word);
}

struct Quads {
  static constexpr PackedKind kKind = PackedKind::bf16;
  using Staged = uint16_t;
  static constexpr bool kTurns = true;

  // Rows come padded with zeros to whole blocks.
  static void stage_row(const LinearArgs& a, int64_t row, int64_t from, int64_t blocks, uint16_t* to) {
    const uint16_t* x = static_cast<const uint16_t*>(a.x) + row * a.ldx + from;
    const I order = _mm512_broadcast_i32x4(_mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11));
    for (int64_t i = 0; i < 32 * blocks; i += 32)
      _mm512_storeu_si512(to + i, _mm512_shuffle_epi8(_mm512_loadu_si512(x + i), order));
  }

  struct Words {
    I even, odd;
  };
  // Two pair rows of a panel.
  static Words words_of(const uint8_t* pairs) {
    constexpr __mmask32 kHigh = 0xAAAAAAAA;
    const I first = _mm512_loadu_si512(pairs), second = _mm512_loadu_si512(pairs + 64);
    return {_mm512_mask_blend_epi16(kHigh, second, V::shl<16>(first)), _mm512_mask_blend_epi16(kHigh, V::shr<16>(second), first)};
  }

  static void turn(const uint8_t* record, int64_t count, uint8_t* to) {
    for (int64_t i = 0; i < count * record_bytes(kKind, 0); i += 128) {
      const Words words = words_of(record + i);
      _mm512_storeu_si512(to + i, words.even);
      _mm512_storeu_si512(to + i + 64, words.odd);
    }
  }

  template <bool is_turned, int R, int C>
  static void add(const uint16_t* x, int64_t stride, const uint8_t* record, int64_t panel_bytes, Chains<R, C>* even, Chains<R, C>* odd) {
#pragma GCC unroll 4
    for (int i = 0; i < 32; i += 4) {
      Words w[C];
      for (int c = 0; c < C; ++c) {
        const uint8_t* at = record + c * panel_bytes + 32 * i;
        w[c] = is_turned ? Words{_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64)} : words_of(at);
      }
      for (int r = 0; r < R; ++r) {
        const __m512bh a = word_at(x + r * stride + i), b = word_at(x + r * stride + i + 2);
        for (int c = 0; c < C; ++c) {
          even->sum[r][c] = _mm512_dpbf16_ps(even->sum[r][c], a, (__m512bh)w[c].even);
          odd->sum[r][c] = _mm512_dpbf16_ps(odd->sum[r][c], b, (__m512bh)w[c].odd);
        }
      }
    }
  }
};

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) { run_dense<Quads>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
