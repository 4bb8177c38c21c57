// copy_blocks: whole pages inside the pool. A unit is the same slice of all pairs, so that pairs keep their order whichever
// thread copies which slice. Plain copies: the baseline does as well as any level.
#include <cstring>

#include "contract/attention.h"

namespace octavo::OCTAVO_ISA_NS {

void copy_blocks(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const CopyBlocksArgs*>(raw);
  constexpr int64_t kSlice = 64 << 10;
  for (int64_t begin, end; lane.claim((a.page_bytes + kSlice - 1) / kSlice, 1, &begin, &end);) {
    const int64_t from = begin * kSlice, to = end * kSlice < a.page_bytes ? end * kSlice : a.page_bytes;
    for (int32_t i = 0; i < a.pairs[0]; ++i) {
      const int64_t source = a.pairs[1 + 2 * i], target = a.pairs[2 + 2 * i];
      if (source != target)
        std::memcpy(step.pool + target * a.page_bytes + from, step.pool + source * a.page_bytes + from,
                    static_cast<size_t>(to - from));
    }
  }
}

}  // namespace octavo::OCTAVO_ISA_NS
