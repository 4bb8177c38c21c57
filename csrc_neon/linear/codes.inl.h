// Codes of the packed layouts (packed/panels.h, packed/planes.h) as signed bytes: `Codes(chunk, part).code<step>()` is inputs 4 * step ..
// of the 32 of a chunk for outputs 4 * part .. of a panel. kSteps: of products that an int16 sum takes (dots.inl.h).
#pragma once
#include "linear/dots.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct ByteCodes {
  static constexpr int kChunk = 512, kSteps = 2, kShift = 0;
  const uint8_t* at;
  OCTAVO_INLINE ByteCodes(const uint8_t* chunk, int part) : at(chunk + 16 * part) {}
  template <int step>
  OCTAVO_INLINE Bytes code() const {
    return load_bytes(at + 64 * step);
  }

  static constexpr int kLow = 8;
  struct Tops {
    explicit OCTAVO_INLINE Tops(const uint8_t*) {}
  };
  template <int step>
  static OCTAVO_INLINE Bytes joined(uint8x16_t x, const Tops&, int) {
    return vreinterpretq_s8_u8(x);
  }
};

// Bits of a plane of b bits, moved from where `step` has them to bit `to`; others stand beside them.
template <int b, int step, int to>
OCTAVO_INLINE uint8x16_t moved(uint8x16_t x) {
  constexpr int from = b * (step / b);
  if constexpr (from > to) return vshrq_n_u8(x, from - to);
  if constexpr (from < to) return vshlq_n_u8(x, to - from);
  return x;
}

OCTAVO_INLINE uint8x16_t all_bytes(int byte) { return vdupq_n_u8(static_cast<uint8_t>(byte)); }

// The lowest bits of a code, clean.
template <int b, int step>
OCTAVO_INLINE uint8x16_t lowest(uint8x16_t plane) {
  const uint8x16_t x = moved<b, step, 0>(plane);
  return b * (step / b) == 8 - b ? x : vandq_u8(x, all_bytes((1 << b) - 1));
}

// How a code is joined from a vector of its low plane and one of its high plane, less the zero point. kFlip: what the high plane is
// changed by beforehand, once for all steps that share a vector.
template <int low, int high, int zero>
struct Joint;

template <int low>
struct Joint<low, 0, 0> {
  static constexpr int kFlip = 0, kShift = 0;
  template <int step>
  static OCTAVO_INLINE uint8x16_t join(uint8x16_t x, uint8x16_t) {
    return lowest<low, step>(x);
  }
};

template <>
struct Joint<4, 1, 0> {
  static constexpr int kFlip = 0, kShift = 0;
  template <int step>
  static OCTAVO_INLINE uint8x16_t join(uint8x16_t x, uint8x16_t fifth) {
    return vbslq_u8(all_bytes(16), moved<1, step, 4>(fifth), lowest<4, step>(x));
  }
};

// With the highest bit turned over, a code less 32 stands in two's complement in the upper six bits of a byte: with SDOT 4 times the
// code.
template <>
struct Joint<4, 2, 32> {
#if defined(__ARM_FEATURE_DOTPROD)
  static constexpr int kFlip = 0xAA, kShift = 2;
#else
  static constexpr int kFlip = 0xAA, kShift = 0;
#endif
  template <int step>
  static OCTAVO_INLINE uint8x16_t join(uint8x16_t x, uint8x16_t top) {
    constexpr int to = step < 4 ? 0 : 6;  // below the low four bits moved up, or above them as they are
    const uint8x16_t high = moved<2, step, to>(top);
    const uint8x16_t code = step < 4 ? vsliq_n_u8(vshlq_n_u8(x, 2), high, 6) : vsriq_n_u8(high, x, 2);
    if constexpr (kShift == 0) return vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(code), 2));
    return step < 4 ? code : vandq_u8(code, all_bytes(0xFC));
  }
};

// Where the third bit, turned over, is set, so are all above it: 4 is off.
template <>
struct Joint<2, 1, 4> {
  static constexpr int kFlip = 0xFF, kShift = 0;
  template <int step>
  static OCTAVO_INLINE uint8x16_t join(uint8x16_t x, uint8x16_t third) {
    const uint8x16_t code = moved<2, step, 0>(x), above = vtstq_u8(third, all_bytes(1 << step));
    return vsliq_n_u8(code, above, 2);
  }
};

// One or two planes.
template <int low, int high, int zero>
struct PlaneCodes {
  using Join = Joint<low, high, zero>;
  static constexpr int kChunk = 64 * (low + high), kSteps = 8, kShift = Join::kShift;

  OCTAVO_INLINE PlaneCodes(const uint8_t* chunk, int part) {
#pragma GCC unroll 8
    for (int i = 0; i < low + high; ++i) plane_[i] = vld1q_u8(chunk + 64 * i + 16 * part);
#pragma GCC unroll 2
    for (int i = low; i < low + high && Join::kFlip; ++i) plane_[i] = flipped(plane_[i]);
  }
  template <int step>
  OCTAVO_INLINE Bytes code() const {
    return vreinterpretq_s8_u8(Join::template join<step>(plane_[step % low], plane_[high ? low + step % (high ? high : 1) : 0]));
  }

  // The same for one row: a vector of the low plane of each part at a time, beside all of the high plane.
  static constexpr int kLow = low;
  struct Tops {
    uint8x16_t plane[high ? high : 1][4];
    explicit OCTAVO_INLINE Tops(const uint8_t* chunk) {
#pragma GCC unroll 8
      for (int i = 0; i < 4 * high; ++i) {
        plane[i / 4][i % 4] = vld1q_u8(chunk + 64 * low + 16 * i);
        if constexpr (Join::kFlip != 0) plane[i / 4][i % 4] = flipped(plane[i / 4][i % 4]);
      }
    }
  };
  template <int step>
  static OCTAVO_INLINE Bytes joined(uint8x16_t x, const Tops& tops, int part) {
    if constexpr (high == 0) return vreinterpretq_s8_u8(Join::template join<step>(x, x));
    return vreinterpretq_s8_u8(Join::template join<step>(x, tops.plane[step % (high ? high : 1)][part]));
  }

 private:
  static OCTAVO_INLINE uint8x16_t flipped(uint8x16_t x) {
    x = veorq_u8(x, all_bytes(Join::kFlip));
    asm("" : "+w"(x));  // here, not in every step
    return x;
  }

  uint8x16_t plane_[low + high];
};

using NibbleCodes = PlaneCodes<4, 0, 0>;

// Nibbles in two's complement (packed/flips.h): with SDOT 16 times the code, which an exact conversion takes off again; else the code,
// of which an int16 holds more products.
struct SignedNibbles {
  static constexpr int kChunk = 256;
#if defined(__ARM_FEATURE_DOTPROD)
  static constexpr int kSteps = 8, kShift = 4;
#else
  static constexpr int kSteps = 8, kShift = 0;
#endif
  Bytes pairs[4];
  OCTAVO_INLINE SignedNibbles(const uint8_t* chunk, int part) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) pairs[i] = load_bytes(chunk + 64 * i + 16 * part);
  }
  template <int step>
  OCTAVO_INLINE Bytes code() const {
    return signed_code<step>(pairs[step % 4]);
  }

  static constexpr int kLow = 4;
  struct Tops {
    explicit OCTAVO_INLINE Tops(const uint8_t*) {}
  };
  template <int step>
  static OCTAVO_INLINE Bytes joined(uint8x16_t x, const Tops&, int) {
    return signed_code<step>(vreinterpretq_s8_u8(x));
  }

 private:
  template <int step>
  static OCTAVO_INLINE Bytes signed_code(Bytes pair) {
    const Bytes high = step < 4 ? vshlq_n_s8(pair, 4) : vandq_s8(pair, vdupq_n_s8(static_cast<int8_t>(0xF0)));
    return kShift ? high : vshrq_n_s8(step < 4 ? high : pair, 4);
  }
};

// float(isum), exact. kShift: codes are so many times two what they stand for.
template <class Codes>
OCTAVO_INLINE F to_float(I isum) {
  if constexpr (Codes::kShift > 0) return vcvtq_n_f32_s32(isum, Codes::kShift);
  return V::cvt_f32(isum);
}

// The inputs of a chunk.
template <int R>
struct ChunkInputs {
  Bytes half[2][R];

  OCTAVO_INLINE ChunkInputs(const int8_t* x, int64_t ldx) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      half[0][r] = load_bytes(x + r * ldx);
      half[1][r] = load_bytes(x + r * ldx + 16);
    }
  }
};

// sum[r] += products of steps first .. last - 1 of a part's codes.
template <int first, int last, class Codes, int R>
OCTAVO_INLINE void add_steps(Ints<R, 1>* sum, const Codes& codes, const ChunkInputs<R>& in) {
  constexpr bool kIsWhole = last - first == 8;
  constexpr int kCount = Codes::kSteps < last - first ? Codes::kSteps : last - first;
  Dots<R, 1> dots;
  each<first, last>([&](auto n) __attribute__((always_inline)) {
    constexpr int step = kIsWhole ? n / 2 + n % 2 * 4 : n;  // the two nibbles of a byte one after the other
    dots.template add<step % 4, n - first, kCount>(sum, in.half[step / 4], [&](auto) __attribute__((always_inline)) {
      return codes.template code<step>();
    });
  });
}

#if defined(__ARM_FEATURE_DOTPROD)
// For one row: sum[run] += products of the steps of each of `runs` equal runs, all four parts.
template <class Codes, int runs>
OCTAVO_INLINE void add_row(Ints<1, 4> (&sum)[runs], const uint8_t*& chunk, const ChunkInputs<1>& in) {
  const typename Codes::Tops tops(chunk);
  each<0, Codes::kLow>([&](auto i) __attribute__((always_inline)) {
    Bytes x[4];
    load_four(chunk, x);
    each<0, 8 / Codes::kLow>([&](auto turn) __attribute__((always_inline)) {
      constexpr int step = i + turn * Codes::kLow;
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        I& y = sum[step * runs / 8].v[0][part];
        y = vdotq_laneq_s32(y, Codes::template joined<step>(vreinterpretq_u8_s8(x[part]), tops, part), in.half[step / 4][0], step % 4);
      }
    });
  });
}
#endif

// isum[r][i] += products of a chunk, parts part0 .. part0 + N - 1.
template <class Codes, int R, int N>
OCTAVO_INLINE void add_chunk(Ints<R, N>* isum, const uint8_t* chunk, int part0, const int8_t* x, int64_t ldx) {
  const ChunkInputs<R> in(x, ldx);
#if defined(__ARM_FEATURE_DOTPROD)
  if constexpr (R == 1) return add_row<Codes>(*reinterpret_cast<Ints<1, 4>(*)[1]>(isum), chunk, in);
#endif
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    Ints<R, 1> sum;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum.v[r][0] = isum->v[r][i];
    add_steps<0, 8>(&sum, Codes(chunk, part0 + i), in);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) isum->v[r][i] = sum.v[r][0];
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
