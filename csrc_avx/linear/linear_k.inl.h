// linear_q4k and linear_q8k: K-quants, 256 inputs per float16 scale with integer sub-scales; inputs int8 per (row, 256).
//
// Per 256 inputs: isum = sum of sub_scale * (sub-block sum), msum = sum of sub_min * (sub-block sum of inputs), both exact in
// int32; then acc = fma(float(isum), s_a * d, acc) and acc = fma(float(msum), -(s_a * dmin), acc). Codes lie in [-32, 31], so
// that four steps of VPMADDUBSW stay below 2^15: 4 * 2 * 32 * 127 = 32,512.
#pragma once
#include "linear/bytes.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kMaxRows = V::kLanes == 16 ? 8 : 4;  // as many int32 and float32 accumulators as registers carry

// Sums of 16 inputs as int16, in pairs of neighbouring sixteens: |sum| <= 16 * 127.
inline void narrow_sums(const int32_t* sums, int16_t* out) {
  const __m128i* p = reinterpret_cast<const __m128i*>(sums);
  for (int i = 0; i < 2; ++i)
    _mm_store_si128(reinterpret_cast<__m128i*>(out) + i,
                    _mm_packs_epi32(_mm_loadu_si128(p + 2 * i), _mm_loadu_si128(p + 2 * i + 1)));
}

template <int R>
struct KTile {
  const int8_t* x[R];
  const float* scales[R];
  const int32_t* sums[R];
  F acc[R][kParts];

  KTile(const LinearArgs& a, int64_t row) {
    for (int r = 0; r < R; ++r) {
      x[r] = static_cast<const int8_t*>(a.x) + (row + r) * a.ldx;
      scales[r] = a.scales + (row + r) * a.lds;
      sums[r] = a.sums + 16 * (row + r) * a.lds;
      for (int p = 0; p < kParts; ++p) acc[r][p] = V::zero();
    }
  }

  void end_block(int64_t b, const I (&isum)[R][kParts], const uint8_t* d) {
    for (int p = 0; p < kParts; ++p)
      for (int r = 0; r < R; ++r)
        acc[r][p] = V::fma(V::cvt_f32(isum[r][p]), V::mul(V::broadcast(scales[r][b]), half_part(d, p)), acc[r][p]);
  }

  // `mins(pair, part)`: the int16 sub-minima of sixteens 2 * pair and 2 * pair + 1 in each lane.
  template <class Mins>
  void end_mins(int64_t b, const uint8_t* dmin, Mins&& mins) {
    alignas(16) int16_t narrow[R][16];
    for (int r = 0; r < R; ++r) narrow_sums(sums[r] + 16 * b, narrow[r]);
    for (int p = 0; p < kParts; ++p) {
      I msum[R];
      for (int r = 0; r < R; ++r) msum[r] = V::ibroadcast(0);
      for (int pair = 0; pair < 8; ++pair) {
        const I m = mins(pair, p);
        for (int r = 0; r < R; ++r) msum[r] = V::iadd(msum[r], madd16(m, V::ibroadcast(dword_at(narrow[r] + 2 * pair))));
      }
      const F low = half_part(dmin, p);
      for (int r = 0; r < R; ++r)
        acc[r][p] = V::fma(V::cvt_f32(msum[r]), V::neg(V::mul(V::broadcast(scales[r][b]), low)), acc[r][p]);
    }
  }
};

template <int32_t flags>
struct Q8k {
  static constexpr PackedKind kKind = PackedKind::q8k;
  static constexpr int32_t kFlags = flags;
  static constexpr bool kUnsigned = (flags & kHasMin) != 0;

  // int16 steps (or int32 with VNNI) of four inputs; signed codes are small, so that four steps fit.
  static I step(I sum, I codes, I x) {
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
    return kUnsigned ? mac(sum, codes, x) : mac_signed(sum, codes, x);
#else
    return kUnsigned ? mac(sum, codes, x) : mac(sum, abs8(codes), with_sign8(x, codes));
#endif
  }

  template <int R>
  static void tile(const LinearArgs& a, int64_t row, int64_t panel, const uint8_t* record, int64_t blocks) {
    KTile<R> t(a, row);
    for (int64_t b = 0; b < blocks; ++b, record += record_bytes(kKind, flags)) {
      const int8_t* sub_scales = reinterpret_cast<const int8_t*>(record + 4096);
      const uint8_t* sub_mins = record + 4352;
      I isum[R][kParts];
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) isum[r][p] = V::ibroadcast(0);
      for (int sub = 0; sub < 16; ++sub) {
        constexpr int64_t kSixteenth = record_bytes(kKind, flags) / 16;
        if constexpr (R <= kFewRows) prefetch_ahead<kSixteenth>(record + kSixteenth * sub);
        I sum[R][kParts];
        for (int r = 0; r < R; ++r) {
          // VNNI multiplies code + 128: the surplus is taken off before the sub-scale
          const int32_t start = kVnni && !kUnsigned ? -128 * t.sums[r][16 * b + sub] : 0;
          for (int p = 0; p < kParts; ++p) sum[r][p] = V::ibroadcast(start);
        }
        for (int c = 0; c < 4; ++c) {
          I codes[kParts];
          for (int p = 0; p < kParts; ++p) codes[p] = load_bytes(record + 256 * sub + 64 * c + 4 * V::kLanes * p);
          for (int r = 0; r < R; ++r) {
            const I x = inputs_at(t.x[r] + 256 * b + 16 * sub + 4 * c);
            for (int p = 0; p < kParts; ++p) sum[r][p] = step(sum[r][p], codes[p], x);
          }
        }
        for (int p = 0; p < kParts; ++p) {
          const I scale = scale_lanes(widen_i8(sub_scales + 16 * sub + V::kLanes * p));
          for (int r = 0; r < R; ++r) isum[r][p] = mac_scaled(isum[r][p], sum[r][p], scale);
        }
      }
      const uint8_t* d = sub_mins + (kUnsigned ? 256 : 0);
      t.end_block(b, isum, d);
      if constexpr (kUnsigned)
        t.end_mins(b, d + 32, [&](int pair, int p) {
          const uint8_t* at = sub_mins + 32 * pair + V::kLanes * p;
          return V::ior(widen_u8(at), V::shl<16>(widen_u8(at + 16)));
        });
    }
    finish_rows<R>(a, row, panel, t.acc);
  }
};

template <class Format, int R = kMaxRows>
inline void rows_tile(const LinearArgs& a, const Span& s, int64_t panel, const uint8_t* record, int64_t groups) {
  if constexpr (R > 1) {
    if (s.rows < R) return rows_tile<Format, R - 1>(a, s, panel, record, groups);
  }
  Format::template tile<R>(a, s.row, panel, record, groups);
}

template <class Format>
inline void run_format(const LinearArgs& a, const Step& step, const Lane& lane) {
  const int64_t inputs = record_inputs(Format::kKind), records = round_up(a.k, inputs) / inputs;
  const int64_t bytes = records * record_bytes(Format::kKind, Format::kFlags);
  run_tiles<kMaxRows>(a, step, lane, bytes, [&](const Span& s) {
    for (int64_t p = s.panel; p < s.panel + s.panels; ++p)
      rows_tile<Format>(a, s, p, static_cast<const uint8_t*>(a.weight) + p * bytes, records);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
