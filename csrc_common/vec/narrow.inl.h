// A row of float32 as bfloat16, over any vector class: what norms and attention write where products read it, and KV pages hold.
#pragma once

#include "scalar.h"

namespace octavo::OCTAVO_ISA_NS::vec {

template <class V>
inline void narrow_row(const float* x, int64_t n, uint16_t* to) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store_bf16(to + i, V::load(x + i));
  if (i < n) V::store_bf16_n(to + i, V::load_n(x + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

}  // namespace octavo::OCTAVO_ISA_NS::vec
