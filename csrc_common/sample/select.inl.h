// Selection without sorting: where the beginning of an order ends, by count or by mass.
//
// Entries have a 32-bit key (smaller goes first; equal keys in the order of the entries, which is that of token ids) and an
// integer mass. The shortest beginning whose mass reaches `needed` is found by histograms of masses over the range of the keys,
// each over the bucket of the last one where the sum crossed, until a bucket is one key. Linear, no worst case, and exact
// whatever the order of summation, since masses are integers.
#pragma once
#include <cstdint>

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Entries below `key` belong to the beginning, and of those equal to it the first ones, until their mass reaches `rest`.
struct Cut {
  uint32_t key;
  uint64_t rest;
};

// Order of floats as unsigned integers, greatest float first; -0 counts as +0.
inline uint32_t descending_bits(float x) {
  uint32_t u;
  const float y = x + 0.0f;
  __builtin_memcpy(&u, &y, 4);
  return (u & 0x80000000u) ? u : u ^ 0x7FFFFFFFu;
}

inline float descending_value(uint32_t key) {
  float x;
  const uint32_t u = (key & 0x80000000u) ? key : key ^ 0x7FFFFFFFu;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

template <int bits, class Key, class Mass>
inline Cut cut_by_buckets(int64_t n, uint64_t needed, Key key, Mass mass) {
  uint32_t low = ~0u, high = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t k = key(i);
    low = k < low ? k : low;
    high = k > high ? k : high;
  }
  for (;;) {
    const uint32_t width = high - low;
    const int shift = width >> bits ? 32 - bits - __builtin_clz(width) : 0;
    uint64_t sums[1 << bits] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t k = key(i) - low;
      if (k <= width) sums[k >> shift] += mass(i);
    }
    uint32_t bucket = 0;
    for (; bucket < width >> shift && sums[bucket] < needed; ++bucket) needed -= sums[bucket];
    low += bucket << shift;
    if (shift == 0) return {low, needed};
    const uint32_t last = low + ((1u << shift) - 1u);
    high = last < high ? last : high;
  }
}

// key(i), mass(i) of entries 0 .. n - 1; their masses reach `needed`, which is 1 at least.
template <class Key, class Mass>
inline Cut cut_at(int64_t n, uint64_t needed, Key key, Mass mass) {
  return n < 4096 ? cut_by_buckets<8>(n, needed, key, mass) : cut_by_buckets<11>(n, needed, key, mass);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
