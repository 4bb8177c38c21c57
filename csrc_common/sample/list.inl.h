// The few tokens of a row that filters work on, in ascending order of ids, so that the first of equals is the lowest id.
//
// The best k of a row are found in one pass: once k values are listed, a value enters only if it is above the k-th of them (an
// equal one has a higher id), so that of a whole vocabulary hardly more than a few k are ever looked at twice.
#pragma once
#include "sample/select.inl.h"
#include "sample/values.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kPiece = 512;  // ids between two looks at the length of a list

struct List {
  float* y;      // tempered values
  int32_t* id;
  float* e;      // exp(y - top), where masses are needed; null if never
  int64_t n = 0;

  // A list in the same memory from place `at` on.
  List from(int64_t at) const { return {y + at, id + at, e ? e + at : nullptr, 0}; }

  void add(float value, int64_t token) {
    y[n] = value;
    id[n++] = static_cast<int32_t>(token);
  }
};

inline float top_of(const List& list) {
  F top = V::broadcast(-kInf);
  for (int64_t i = 0; i < list.n; i += kGroup) top = V::max(greatest_of(list.y + i, list.n - i), top);
  return greatest_lane(top);
}

// Leaves the entries i for which stays(i).
template <class Stays>
inline void keep_if(List* list, Stays stays) {
  int64_t kept = 0;
  for (int64_t i = 0; i < list->n; ++i) {
    const bool is_kept = stays(i);
    list->y[kept] = list->y[i];
    list->id[kept] = list->id[i];
    kept += is_kept;
  }
  list->n = kept;
}

// Leaves the shortest beginning of the order whose mass reaches `needed`; returns where it ends. Masses must reach it.
template <class Key, class Mass>
inline Cut keep_first(List* list, uint64_t needed, Key key, Mass mass) {
  const Cut cut = cut_at(list->n, needed, key, mass);
  uint64_t rest = cut.rest;
  keep_if(list, [&](int64_t i) {
    const uint32_t k = key(i);
    if (k != cut.key) return k < cut.key;
    if (rest == 0) return false;
    const uint64_t m = mass(i);
    rest = rest > m ? rest - m : 0;
    return true;
  });
  return cut;
}

inline Cut keep_best(List* list, int64_t k) {
  return keep_first(
      list, static_cast<uint64_t>(k), [&](int64_t i) { return descending_bits(list->y[i]); }, [](int64_t) { return uint64_t{1}; });
}

// Adds the lanes in `bits` of tempered values of the ids from `first` on.
inline void add_lanes(F y, uint32_t bits, int64_t first, List* list) {
  if (bits == kAllLanes) {
    V::store(list->y + list->n, y);
    for (int i = 0; i < kLanes; ++i) list->id[list->n + i] = static_cast<int32_t>(first + i);
    list->n += kLanes;
    return;
  }
  float lanes[kLanes];
  V::store(lanes, y);
  for (; bits; bits &= bits - 1) list->add(lanes[__builtin_ctz(bits)], first + __builtin_ctz(bits));
}

// Adds the values x[0 .. n) of the ids from `start` on that lie above `bound` (before they are tempered).
inline void add_above(const float* x, int64_t start, int64_t n, float bound, float temperature, List* list) {
  const F least = V::broadcast(bound);
  for (int64_t group = 0; group < n; group += kGroup) {
    if (!V::mask_bits(V::gt(greatest_of(x + group, n - group), least))) continue;
    for (int64_t i = group; i < smaller(group + kGroup, n); i += kLanes) {
      const F v = load_values(x + i, n - i);
      const uint32_t bits = V::mask_bits(V::gt(v, least));
      if (bits) add_lanes(tempered<V>(v, temperature), bits, start + i, list);
    }
  }
}

inline void list_above(const Source& s, const Range& range, float bound, float* buffer, List* list) {
  each_segment(s, range, buffer,
               [&](const float* x, int64_t start, int64_t n) { add_above(x, start, n, bound, s.temperature, list); });
}

// The k best of the range (all, if there are fewer). The list has room for every id of the range.
inline void list_best(const Source& s, const Range& range, int64_t k, float* buffer, List* list) {
  float bound = -kInf;
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; i += kPiece) {
      add_above(x + i, start + i, smaller(n - i, kPiece), bound, s.temperature, list);
      if (list->n > 2 * k + kPiece / 2) bound = bound_below(descending_value(keep_best(list, k).key), s.temperature);
    }
  });
  if (list->n > k) keep_best(list, k);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
