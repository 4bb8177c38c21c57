// add: y = a * scale_a + b * scale_b, each product rounded (skipped where the scale is 1), then the sum. One body for every
// level; rows are shared out in chunks.
#include "contract/token.h"

namespace octavo::OCTAVO_ISA_NS {

void add(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const AddArgs*>(raw);
  const int64_t rows = num_rows(a.rows, step);
  const bool scales_a = a.scale_a != 1.0f;
  const bool scales_b = a.scale_b != 1.0f;
  for (int64_t begin, end; lane.claim(rows, lane.worthwhile(rows, a.width), &begin, &end);) {
    for (int64_t r = begin; r < end; ++r) {
      const float* pa = a.a + r * a.lda;
      const float* pb = a.b + r * a.ldb;
      float* py = a.y + r * a.ldy;
      for (int64_t i = 0; i < a.width; ++i) {
        const float va = scales_a ? pa[i] * a.scale_a : pa[i];
        const float vb = scales_b ? pb[i] * a.scale_b : pb[i];
        py[i] = va + vb;
      }
    }
  }
}

}  // namespace octavo::OCTAVO_ISA_NS
