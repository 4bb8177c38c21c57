// exp, log, tanh, sigmoid, erf, gelu, gelu_tanh, silu over any vector class: the twin of platforms/reference/f32.py.
//
// The same operations in the same order on every chip, hence the same bits; docs/numerics.md gives the algorithms, their
// error bounds and their values at zero, infinity and NaN. Compile with -ffp-contract=off; run under FTZ and DAZ.
#pragma once

#include "scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

template <class V, int n>
OCTAVO_FN typename V::F horner(typename V::F x, const float (&c)[n]) {
  typename V::F y = V::broadcast(c[0]);
  for (int i = 1; i < n; ++i) y = V::fma(y, x, V::broadcast(c[i]));
  return y;
}

// exp of -87 <= x <= 0.
template <class V>
OCTAVO_FN typename V::F exp_near(typename V::F x) {
  using F = typename V::F;
  static constexpr float kPoly[] = {0x1.6dbc4ap-10f, 0x1.124136p-7f, 0x1.555454p-5f, 0x1.555488p-3f, 0.5f, 1.0f, 1.0f};
  const F magic = V::broadcast(0x1.8p+23f);
  const F t = V::fma(x, V::broadcast(0x1.715476p+0f), magic);  // the low bits of t hold n = round(x / ln 2)
  const F n = V::sub(t, magic);
  F r = V::fma(n, V::broadcast(-0x1.62e400p-1f), x);
  r = V::fma(n, V::broadcast(-0x1.7f7d1cp-20f), r);
  const F p = horner<V>(r, kPoly);
  return V::from_bits(V::iadd(V::bits(p), V::template shl<23>(V::bits(t))));
}

// exp of x <= 0 (not NaN), with fewer selects.
template <class V>
OCTAVO_FN typename V::F exp_below(typename V::F x) {
  return V::select(V::lt(x, V::broadcast(-0x1.5d589ep+6f)), V::zero(), exp_near<V>(x));
}

template <class V>
OCTAVO_FN typename V::F exp(typename V::F x) {
  const typename V::F y = V::select(V::gt(x, V::broadcast(0x1.62e42ep+6f)), V::broadcast(__builtin_inff()), exp_below<V>(x));
  return V::select(V::eq(x, x), y, x);
}

// x = 2^k (1 + f) of normal positive x, sqrt(1/2) <= 1 + f < sqrt(2); k as float32.
template <class V>
OCTAVO_FN void log_reduce(typename V::F x, typename V::F* k, typename V::F* f) {
  const typename V::I u = V::bits(x);
  const typename V::I e = V::template sar<23>(V::isub(u, V::ibroadcast(0x3F3504F3)));
  *k = V::cvt_f32(e);
  *f = V::sub(V::from_bits(V::isub(u, V::template shl<23>(e))), V::broadcast(1.0f));
}

// k log 2 + log(1 + f).
template <class V>
OCTAVO_FN typename V::F log_parts(typename V::F k, typename V::F f) {
  using F = typename V::F;
  static constexpr float kPoly[] = {0x1.147f7ep-4f,  -0x1.de810ap-4f, 0x1.e7046ap-4f,  -0x1.fc18d4p-4f, 0x1.23358ep-3f,
                                    -0x1.555c7ap-3f, 0x1.99a4ccp-3f,  -0x1.000006p-2f, 0x1.555548p-2f};
  const F z = V::mul(f, f);
  F y = V::mul(V::mul(f, z), horner<V>(f, kPoly));
  y = V::fma(z, V::broadcast(-0.5f), V::fma(k, V::broadcast(0x1.7f7d1cp-20f), y));
  return V::fma(k, V::broadcast(0x1.62e400p-1f), V::add(f, y));
}

// Natural logarithm.
template <class V>
OCTAVO_FN typename V::F log(typename V::F x) {
  using F = typename V::F;
  F k, f;
  log_reduce<V>(x, &k, &f);
  F y = log_parts<V>(k, f);
  y = V::select(V::eq(x, V::zero()), V::broadcast(-__builtin_inff()), y);
  y = V::select(V::lt(x, V::zero()), V::broadcast(__builtin_nanf("")), y);
  return V::select(V::lt(x, V::broadcast(__builtin_inff())), y, x);
}

template <class V>
OCTAVO_FN typename V::F tanh(typename V::F x) {
  using F = typename V::F;
  static constexpr float kPoly[] = {-0x1.7363e6p-8f, 0x1.519c84p-6f, -0x1.b827fcp-5f, 0x1.110692p-3f, -0x1.555530p-2f};
  const F one = V::broadcast(1.0f);
  const F a = V::abs(x), z = V::mul(x, x);
  const F small = V::fma(V::mul(x, z), horner<V>(z, kPoly), x);
  const F large = V::sub(one, V::div(V::broadcast(2.0f), V::add(exp<V>(V::add(a, a)), one)));
  const F y = V::copysign(V::select(V::lt(a, V::broadcast(0.625f)), small, large), x);
  return V::select(V::eq(x, x), y, x);
}

template <class V>
OCTAVO_FN typename V::F sigmoid(typename V::F x) {
  const typename V::F one = V::broadcast(1.0f);
  return V::div(one, V::add(one, exp<V>(V::neg(x))));
}

template <class V>
OCTAVO_FN typename V::F erf(typename V::F x) {
  using F = typename V::F;
  static constexpr float kSmall[] = {0x1.496a24p-14f, -0x1.a3f6fap-11f, 0x1.5405b2p-8f, -0x1.b7f90cp-6f,
                                     0x1.ce2cf8p-4f,  -0x1.81273ep-2f,  0x1.06eba8p-3f};
  static constexpr float kLarge[] = {-0x1.852d76p-13f, 0x1.814cf6p-9f, -0x1.654230p-6f, 0x1.a60a8ap-4f,
                                     0x1.46c582p-1f,   0x1.2085b2p+0f, 0x1.72e58ap-12f};
  const F one = V::broadcast(1.0f), four = V::broadcast(4.0f);
  const F a = V::abs(x);
  const F small = V::fma(x, horner<V>(V::mul(x, x), kSmall), x);
  const F t = V::select(V::lt(a, four), a, four);
  const F large = V::sub(one, exp_near<V>(V::neg(horner<V>(t, kLarge))));  // of 17 at most
  return V::select(V::gt(a, V::broadcast(0x1.fffffep-1f)), V::copysign(large, x), small);  // small has x's sign, and its NaN
}

template <class V>
OCTAVO_FN typename V::F gelu(typename V::F x) {
  const typename V::F h = V::mul(x, V::broadcast(0.5f));
  return V::fma(h, erf<V>(V::mul(x, V::broadcast(0x1.6a09e6p-1f))), h);
}

template <class V>
OCTAVO_FN typename V::F gelu_tanh(typename V::F x) {
  using F = typename V::F;
  const F h = V::mul(x, V::broadcast(0.5f));
  const F inner = V::fma(V::mul(x, x), V::broadcast(0x1.2444f2p-5f), V::broadcast(0x1.988454p-1f));
  return V::fma(h, tanh<V>(V::mul(x, inner)), h);
}

template <class V>
OCTAVO_FN typename V::F silu(typename V::F x) {
  return V::mul(x, sigmoid<V>(x));
}

}  // namespace octavo::OCTAVO_ISA_NS::vec
