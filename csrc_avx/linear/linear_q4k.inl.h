// linear_q4k: 256 inputs per float16 scale with eight integer sub-scales and sub-minima, inputs int8 per (row, 256).
//
// Per 256 inputs: isum = sum of sub_scale * (sum of q_a q), msum = sum of sub_min * (sum of q_a), both exact in int32; then
// acc = fma(float(isum), s_a * d, acc) and acc = fma(float(msum), -(s_a * dmin), acc). A tile is R rows x C panels: integer sums in
// registers, float sums, used once in 256 inputs, in memory.
#pragma once
#include "linear/group_tile.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct Q4kCodes {
  static constexpr bool kIsOneChunk = true, kIsNarrow = !kVnni;

  static I codes(const uint8_t* chunk, int step) { return nibbles_of(load_bytes(chunk + 64 * (step % 4)), step >= 4); }
  static I step(I sum, I codes, I x) { return mac(sum, codes, x); }
};

// Of sums of 16 inputs: sums of 32 as int16, |sum| <= 32 * 127.
inline void sums_of_32(const int32_t* sums, int16_t* out) {
  const __m128i* p = reinterpret_cast<const __m128i*>(sums);
  const __m128i low = _mm_hadd_epi32(_mm_loadu_si128(p), _mm_loadu_si128(p + 1));
  const __m128i high = _mm_hadd_epi32(_mm_loadu_si128(p + 2), _mm_loadu_si128(p + 3));
  _mm_store_si128(reinterpret_cast<__m128i*>(out), _mm_packs_epi32(low, high));
}

template <int R, int C>
struct Q4kSums {
  static constexpr int kVectors = C * kParts;
  using Sums = GroupSums<Q4kCodes, R, C>;
  static constexpr int64_t kEighth = record_bytes(PackedKind::q4k, 0) / 8;

  // Sub-blocks of 256 inputs: isum += sub_scale * (sum of products).
  static OCTAVO_INLINE void products(Sums* isum, const uint8_t* record, int64_t panel_bytes, const int8_t* x, int64_t ldx, Ahead<C>* ahead) {
    const auto zero = [](int, int) { return V::ibroadcast(0); };
    isum->start(zero);
#pragma GCC unroll 1
    for (int sub = 0; sub < 8; ++sub) {
      ahead->aim(record + kEighth * sub);
      const auto between = [&](int n) __attribute__((always_inline)) {
        if (n % 2 == 0) ahead->ask(32 * n);
      };
      Sums sum;
      sum.start(zero);
      if constexpr (kVnni && R * kVectors <= 4)
        sum.chunk(record + 256 * sub, panel_bytes, x + 32 * sub, ldx, between);
      else
        sum.products(0, 8, record + 256 * sub, panel_bytes, x + 32 * sub, ldx, between);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        const uint8_t* scales = record + i / kParts * panel_bytes + 2048 + 16 * sub + i % kParts * V::kLanes;
        const I scale = scale_lanes(widen_u8(scales));
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) isum->v[r][i] = mac_scaled(isum->v[r][i], sum.v[r][i], scale);
      }
    }
  }

  // msum, two sub-blocks at a time.
  static OCTAVO_INLINE void minima(Sums* msum, const uint8_t* record, int64_t panel_bytes, const int16_t (&sums)[R][8]) {
    msum->start([](int, int) { return V::ibroadcast(0); });
#pragma GCC unroll 1
    for (int pair = 0; pair < 4; ++pair)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        const uint8_t* mins = record + i / kParts * panel_bytes + 2176 + 32 * pair + i % kParts * V::kLanes;
        const I both = V::ior(widen_u8(mins), V::template shl<16>(widen_u8(mins + 16)));
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
          msum->v[r][i] = V::iadd(msum->v[r][i], madd16(both, V::ibroadcast(dword_at(sums[r] + 2 * pair))));
      }
  }
};

template <int R, int C>
inline void q4k_tile(const LinearArgs& a, const TileAt& at, int64_t panel_bytes) {
  using Tile = Q4kSums<R, C>;
  const int64_t blocks = round_up(a.k, 256) / 256;
  const int8_t* x = static_cast<const int8_t*>(a.x) + at.row * a.ldx;
  const float* scales = a.scales + at.row * a.lds;
  const int32_t* sums_of_16 = a.sums + 16 * at.row * a.lds;
  const uint8_t* record = static_cast<const uint8_t*>(a.weight) + at.panel * panel_bytes;
  Ahead<C> ahead(at, record, panel_bytes);
  alignas(64) float acc[R * C * 16] = {};
  for (int64_t b = 0; b < blocks; ++b, record += record_bytes(PackedKind::q4k, 0), x += 256, ++scales, sums_of_16 += 16) {
    alignas(16) int16_t sums[R][8];
    for (int r = 0; r < R; ++r) sums_of_32(sums_of_16 + 16 * r * a.lds, sums[r]);
    typename Tile::Sums isum, msum;
    Tile::products(&isum, record, panel_bytes, x, a.ldx, &ahead);
    Tile::minima(&msum, record, panel_bytes, sums);
#pragma GCC unroll 16
    for (int i = 0; i < Tile::kVectors; ++i) {
      const uint8_t* halves = record + i / kParts * panel_bytes + 2304;
      const F d = half_part(halves, i % kParts), low = half_part(halves + 32, i % kParts);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const F s = V::broadcast(scales[r * a.lds]);
        float* sum = acc + (r * Tile::kVectors + i) * V::kLanes;
        const F first = V::fma(V::cvt_f32(isum.v[r][i]), V::mul(s, d), V::load(sum));
        V::store(sum, V::fma(V::cvt_f32(msum.v[r][i]), V::neg(V::mul(s, low)), first));
      }
    }
  }
  finish_tile<V, R, C>(a, at.row, at.panel * kPanel, acc);
}

struct Q4k {
  static constexpr int kRows = V::kLanes == 16 || kVnni ? 6 : 4, kPanels = V::kLanes == 16 ? 2 : 1, kSingles = 0, kInputBytes = 1;

  const LinearArgs& a;
  int64_t panel_bytes;

  template <int R, int C>
  void tile(const TileAt& at) const {
    q4k_tile<R, C>(a, at, panel_bytes);
  }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
