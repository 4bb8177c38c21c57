// Step 4 on a list: top-k, typical-p, top-p, min-p, each over what the one before left.
#pragma once
#include "sample/weigh.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline void filter_top_k(List* list, int64_t k) {
  if (list->n > k) keep_best(list, k);
}

// Surprise below the top's in 2^-20 units, at most 64.
inline uint64_t surprise_of(float value, float top) {
  const float below = top - value;
  return static_cast<uint64_t>(static_cast<double>(below < 64.0f ? below : 64.0f) * 0x1p20);
}

inline void filter_typical(List* list, float p) {
  const float top = top_of(*list);
  const uint64_t total = weigh_list(*list, top);
  unsigned __int128 weighted = 0;
  for (int64_t i = 0; i < list->n; ++i)
    weighted += static_cast<unsigned __int128>(mass_of(list->e[i])) * surprise_of(list->y[i], top);
  const auto mean = static_cast<int64_t>(weighted / total);
  const auto distance = [&](int64_t i) {
    const int64_t away = static_cast<int64_t>(surprise_of(list->y[i], top)) - mean;
    return static_cast<uint32_t>(away < 0 ? -away : away);
  };
  keep_first(list, needed_mass(total, p), distance, [&](int64_t i) { return mass_of(list->e[i]); });
}

// Returns where the kept tokens end. `e` is filled, and the list's masses reach `needed`.
inline Cut filter_top_p(List* list, uint64_t needed) {
  return keep_first(
      list, needed, [&](int64_t i) { return descending_bits(list->y[i]); }, [&](int64_t i) { return mass_of(list->e[i]); });
}

inline void filter_min_p(List* list, float p) {
  weigh_list(*list, top_of(*list));
  keep_if(list, [&](int64_t i) { return list->e[i] >= p; });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
