// rope: y1 = fma(x1, c, -(x2 * s)), y2 = fma(x2, c, x1 * s) over the first rotary_dim values of each head, the rest copied.
// c and s are row positions[t] of the table; positions are checked before a step is built. x and y may be the same rows.
#include <cstring>

#include "contract/token.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <class V>
void rotate_halves(const float* x, float* y, const float* c, const float* s, int64_t from, int64_t half) {
  for (int64_t i = from; i + V::kLanes <= half; i += V::kLanes) {
    const auto x1 = V::load(x + i), x2 = V::load(x + half + i), cos = V::load(c + i), sin = V::load(s + i);
    V::store(y + i, V::fma(x1, cos, V::neg(V::mul(x2, sin))));
    V::store(y + half + i, V::fma(x2, cos, V::mul(x1, sin)));
  }
}

void rotate_pairs(const float* x, float* y, const float* c, const float* s, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = x[2 * i], x2 = x[2 * i + 1];
    y[2 * i] = vec::fma_scalar(x1, c[i], -(x2 * s[i]));
    y[2 * i + 1] = vec::fma_scalar(x2, c[i], x1 * s[i]);
  }
}

}  // namespace

void rope(const void* raw, const Step& step, const Lane& lane) {
  using V = vec::Native;
  const auto& a = *static_cast<const RopeArgs*>(raw);
  const int64_t half = a.rotary_dim / 2, rest = a.head_dim - a.rotary_dim;
  const int64_t whole = half / V::kLanes * V::kLanes;
  const int64_t chunk = lane.worthwhile(step.num_tokens, a.heads * a.head_dim);
  for (int64_t begin, end; lane.claim(step.num_tokens, chunk, &begin, &end);)
    for (int64_t t = begin; t < end; ++t) {
      const float* c = a.table + step.positions[t] * a.rotary_dim;
      const float* s = c + half;
      for (int64_t h = 0; h < a.heads; ++h) {
        const float* x = a.x + t * a.ldx + h * a.head_dim;
        float* y = a.y + t * a.ldy + h * a.head_dim;
        if (a.interleaved) {
          rotate_pairs(x, y, c, s, half);
        } else {
          rotate_halves<V>(x, y, c, s, 0, half);
          rotate_halves<vec::F32x1>(x, y, c, s, whole, half);
        }
        if (x != y && rest > 0)
          std::memcpy(y + a.rotary_dim, x + a.rotary_dim, static_cast<size_t>(rest) * sizeof(float));
      }
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
