// rms_norm and layer_norm: each row holds `heads` vectors of `width` values that are normed apart and share weight and bias.
// Arithmetic: platforms/ops.py (sum16 lanes, true division and root). x and y may be the same rows.
#include <cstring>

#include "contract/token.h"
#include "exec/ask.h"
#include "vec/narrow.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
using F = V::F;

// Calls body(i, n) for i = 0, kLanes, ...; n is kLanes except perhaps at the end.
template <class Body>
void for_lanes(int64_t width, Body body) {
  int64_t i = 0;
  for (; i + V::kLanes <= width; i += V::kLanes) body(i, V::kLanes);
  if (i < width) body(i, static_cast<int>(width - i));
}

F load(const float* p, int n) { return n == V::kLanes ? V::load(p) : V::load_n(p, n); }
void store(float* p, F x, int n) { n == V::kLanes ? V::store(p, x) : V::store_n(p, x, n); }

void rms_norm_one(const NormArgs& a, const float* x, float* y) {
  const float s = vec::sum16_squares<V>(x, a.width);
  const F r = V::broadcast(1.0f / __builtin_sqrtf(s / static_cast<float>(a.width) + a.eps));
  if (a.weight)
    for_lanes(a.width, [&](int64_t i, int n) { store(y + i, V::mul(V::mul(load(x + i, n), r), load(a.weight + i, n)), n); });
  else
    for_lanes(a.width, [&](int64_t i, int n) { store(y + i, V::mul(load(x + i, n), r), n); });
}

void layer_norm_one(const NormArgs& a, const float* x, float* y) {
  const float count = static_cast<float>(a.width);
  const F mean = V::broadcast(vec::sum16<V>(x, a.width) / count);
  for_lanes(a.width, [&](int64_t i, int n) { store(y + i, V::sub(load(x + i, n), mean), n); });
  const F r = V::broadcast(1.0f / __builtin_sqrtf(vec::sum16_squares<V>(y, a.width) / count + a.eps));
  for_lanes(a.width, [&](int64_t i, int n) {
    F v = V::mul(load(y + i, n), r);
    if (a.weight && a.bias)
      v = V::fma(v, load(a.weight + i, n), load(a.bias + i, n));
    else if (a.weight)
      v = V::mul(v, load(a.weight + i, n));
    else if (a.bias)
      v = V::add(v, load(a.bias + i, n));
    store(y + i, v, n);
  });
}

template <class One>
void norm_rows(const void* raw, const Step& step, const Lane& lane, One one) {
  const auto& a = *static_cast<const NormArgs*>(raw);
  const int64_t units = num_rows(a.rows, step) * a.heads;
  const int64_t chunk = lane.worthwhile(units, a.width);
  for (int64_t begin, end; lane.claim(units, chunk, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / a.heads, offset = u % a.heads * a.width;
      if (offset == 0 && u + a.heads < end) ask_for(a.x + (row + 1) * a.ldx, 4 * a.heads * a.width);
      float* y = a.y ? a.y + row * a.ldy + offset : static_cast<float*>(lane.scratch);
      one(a, a.x + row * a.ldx + offset, y);
      if (a.narrow) vec::narrow_row<V>(y, a.width, a.narrow + row * a.ldnarrow + offset);
    }
}

}  // namespace

void rms_norm(const void* raw, const Step& step, const Lane& lane) { norm_rows(raw, step, lane, rms_norm_one); }
void layer_norm(const void* raw, const Step& step, const Lane& lane) { norm_rows(raw, step, lane, layer_norm_one); }

}  // namespace octavo::OCTAVO_ISA_NS
