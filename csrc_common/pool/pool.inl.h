// pool: one vector per sequence: its first row (cls), its last, or the mean of its rows (added in token order from +0, then
// divided by the count); then, if asked, divided by max(sqrt(sum16 of squares), 1e-12).
#include <cstring>

#include "contract/token.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

enum PoolMode : int32_t { kCls = 0, kLast = 1, kMean = 2 };

template <class W>
void mean_columns(const PoolArgs& a, const float* x, float* y, int64_t from, int64_t to, int64_t rows) {
  const auto count = W::broadcast(static_cast<float>(rows));
  for (int64_t i = from; i + W::kLanes <= to; i += W::kLanes) {
    auto sum = W::zero();
    for (int64_t r = 0; r < rows; ++r) sum = W::add(sum, W::load(x + r * a.ldx + i));
    W::store(y + i, W::div(sum, count));
  }
}

void normalize(float* y, int64_t width) {
  const float norm = __builtin_sqrtf(vec::sum16_squares<V>(y, width));
  const float divisor = norm < 1e-12f ? 1e-12f : norm;  // NaN stays
  for (int64_t i = 0; i < width; ++i) y[i] = y[i] / divisor;
}

}  // namespace

void pool(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const PoolArgs*>(raw);
  for (int64_t begin, end; lane.claim(step.num_seqs, 1, &begin, &end);)
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = step.query_start[s], rows = step.query_start[s + 1] - first;
      float* y = a.y + s * a.ldy;
      if (a.mode == kMean) {
        const int64_t whole = a.width / V::kLanes * V::kLanes;
        mean_columns<V>(a, a.x + first * a.ldx, y, 0, whole, rows);
        mean_columns<vec::F32x1>(a, a.x + first * a.ldx, y, whole, a.width, rows);
      } else {
        const int64_t row = a.mode == kCls ? first : first + rows - 1;
        std::memcpy(y, a.x + row * a.ldx, static_cast<size_t>(a.width) * sizeof(float));
      }
      if (a.normalize) normalize(y, a.width);
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
