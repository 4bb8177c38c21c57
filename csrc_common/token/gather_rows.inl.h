// gather_rows: y[r] = x[logits_rows[r]]. Plain copies: the baseline does as well as any level.
#include <cstring>

#include "contract/token.h"

namespace octavo::OCTAVO_ISA_NS {

void gather_rows(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const GatherArgs*>(raw);
  for (int64_t begin, end; lane.claim(step.num_logits, 8, &begin, &end);)
    for (int64_t r = begin; r < end; ++r)
      std::memcpy(a.y + r * a.ldy, a.x + step.logits_rows[r] * a.ldx, static_cast<size_t>(a.width) * sizeof(float));
}

}  // namespace octavo::OCTAVO_ISA_NS
