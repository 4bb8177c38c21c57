// Sources of pairs: the B operand of dot32, read as vectors of the even and of the odd element of each pair.
//
// Pairs<V, View>::even and odd give kLanes lanes of pair row i, from `lane` on. They may come in another order; `order` puts a
// finished vector right. Every widening to float32 is exact. From kUnpackRows rows on, unpacking a block once pays.
// look_ahead asks memory for another tile of the same form while this one is read, a few lines at a time: the hardware's own
// prefetch stops at each page, and a burst of requests is dropped. Into L1: a Zen 5 reads 5 % more a second than into L2.
#pragma once
#include <cstring>

#include "vec/fp8.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Even and odd elements in rows of their own: row i at even + i * stride, odd + i * stride.
struct Planes {
  const float* even;
  const float* odd;
  int64_t stride;
};

inline void look_ahead(const Planes&, int64_t, int64_t, int64_t) {}

// Interleaved pairs of T: lane l of row i at at[i * stride + 2 * l] and the element after it.
template <class T>
struct Packed {
  const T* at;
  int64_t stride;
  const T* ahead;  // of a tile that will be read soon, or null
};

// What lies in the other tile where lanes [lane, lane + lanes) of row i lie in this one.
template <class T>
inline void look_ahead(const Packed<T>& b, int64_t i, int64_t lane, int64_t lanes) {
  if (!b.ahead) return;
  const auto* at = reinterpret_cast<const char*>(b.ahead + i * b.stride + 2 * lane);
  for (int64_t x = 0; x < 2 * lanes * static_cast<int64_t>(sizeof(T)); x += 64) __builtin_prefetch(at + x, 0, 3);
}

template <class V, class View>
struct Pairs;

template <class V>
struct Pairs<V, Planes> {
  using F = typename V::F;
  static constexpr int64_t kUnpackRows = INT64_MAX;
  static F even(const Planes& b, int64_t i, int64_t lane) { return V::load(b.even + i * b.stride + lane); }
  static F odd(const Planes& b, int64_t i, int64_t lane) { return V::load(b.odd + i * b.stride + lane); }
  static F order(F x) { return x; }
};

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};

inline float widen(float x) { return x; }
inline float widen(BF16 x) { return vec::float_of_bf16(x.bits); }
inline float widen(F16 x) { return vec::float_of_f16(x.bits); }
inline float widen(int8_t x) { return static_cast<float>(x); }
inline float widen(E4M3 x) { return vec::E4M3FN::decode(x.bits); }

template <class T>
struct Pairs<vec::F32x1, Packed<T>> {
  static constexpr int64_t kUnpackRows = 2;
  static float even(const Packed<T>& b, int64_t i, int64_t lane) { return widen(b.at[i * b.stride + 2 * lane]); }
  static float odd(const Packed<T>& b, int64_t i, int64_t lane) { return widen(b.at[i * b.stride + 2 * lane + 1]); }
  static float order(float x) { return x; }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS

#include "attention/pairs_native.inl.h"  // of the chip family
