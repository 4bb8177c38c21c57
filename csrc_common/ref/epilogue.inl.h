// What follows a product, shared by every linear kernel: scale, bias, activation, gate, residual, in this order, each rounded
// alone and skipped where absent. relu and relu2 are +0 wherever x > 0 is false (NaN included). `residual` may be `y` itself.
#pragma once
#include "contract/linear.h"
#include "vec/math.inl.h"

namespace octavo::OCTAVO_ISA_NS {

template <class V>
inline typename V::F activate(typename V::F x, int32_t kind) {
  switch (kind) {
    case kSilu: return vec::silu<V>(x);
    case kGelu: return vec::gelu<V>(x);
    case kGeluTanh: return vec::gelu_tanh<V>(x);
    case kRelu: return V::select(V::gt(x, V::zero()), x, V::zero());
    case kRelu2: return V::select(V::gt(x, V::zero()), V::mul(x, x), V::zero());
    case kTanh: return vec::tanh<V>(x);
    case kSigmoid: return vec::sigmoid<V>(x);
    default: return x;
  }
}

// Sums of the 16 outputs from `col` of `row` -> y. Touches only outputs below a.n.
template <class V>
inline void finish(const LinearArgs& a, int64_t row, int64_t col, const float* sums) {
  for (int i = 0; i < 16; i += V::kLanes) {
    const int64_t left = a.n - col - i;
    if (left <= 0) return;
    const int n = left < V::kLanes ? static_cast<int>(left) : V::kLanes;
    const bool whole = n == V::kLanes;
    const auto load = [&](const float* p) { return whole ? V::load(p + col + i) : V::load_n(p + col + i, n); };
    typename V::F v = V::load(sums + i);
    if (a.scale != 1.0f) v = V::mul(v, V::broadcast(a.scale));
    if (a.bias) v = V::add(v, load(a.bias));
    if (a.activation != kNone) v = activate<V>(v, a.activation);
    if (a.gate) v = V::mul(v, load(a.gate + row * a.ldgate));
    if (a.residual) v = V::add(v, load(a.residual + row * a.ldres));
    if (a.narrow) {  // whole: n is a multiple of 32
      V::store_bf16(a.narrow + row * a.ldnarrow + col + i, v);
      continue;
    }
    float* y = a.y + row * a.ldy + col + i;
    if (whole)
      V::store(y, v);
    else
      V::store_n(y, v, n);
  }
}

// The same for sums [R][16 * C] of a tile, from `col` of `row`: what is asked for is looked up once, not for each vector.
template <class V, int R, int C>
inline void finish_tile(const LinearArgs& a, int64_t row, int64_t col, float* sums) {
  constexpr int kWidth = 16 * C;
  if (a.n - col < kWidth) {
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kWidth; c += 16) finish<V>(a, row + r, col + c, sums + kWidth * r + c);
    return;
  }
  const auto each = [&](auto&& change) {
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; i += V::kLanes) {
        float* at = sums + kWidth * r + i;
        V::store(at, change(V::load(at), r, i));
      }
  };
  using F = typename V::F;
  if (a.scale != 1.0f) each([&](F v, int, int) { return V::mul(v, V::broadcast(a.scale)); });
  if (a.bias) each([&](F v, int, int i) { return V::add(v, V::load(a.bias + col + i)); });
  if (a.activation == kSilu) {
    each([&](F v, int, int) { return vec::silu<V>(v); });
  } else if (a.activation != kNone) {
    each([&](F v, int, int) { return activate<V>(v, a.activation); });
  }
  if (a.gate) each([&](F v, int r, int i) { return V::mul(v, V::load(a.gate + (row + r) * a.ldgate + col + i)); });
  if (a.residual) each([&](F v, int r, int i) { return V::add(v, V::load(a.residual + (row + r) * a.ldres + col + i)); });
  if (a.narrow) {
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; i += V::kLanes)
        V::store_bf16(a.narrow + (row + r) * a.ldnarrow + col + i, V::load(sums + kWidth * r + i));
    return;
  }
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i += V::kLanes) V::store(a.y + (row + r) * a.ldy + col + i, V::load(sums + kWidth * r + i));
}

}  // namespace octavo::OCTAVO_ISA_NS
