// Selection without sorting: which entries make up the beginning of the order, by count or by mass.
//
// Entries carry a 64-bit key (smaller goes first; unique, because the token id is its low half) and an integer mass. The
// shortest beginning whose mass reaches `needed` is found by radix from the top byte of the key: one histogram of masses
// per byte, then only the bucket where the sum crosses is looked at again. Linear, no worst case, and exact whatever the
// order of summation, since masses are integers.
#pragma once
#include <cstdint>

#include "sample/row.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Order of floats as unsigned integers, greatest float first; -0 counts as +0.
inline uint32_t descending_bits(float x) {
  uint32_t u;
  const float y = x + 0.0f;
  __builtin_memcpy(&u, &y, 4);
  u = (u & 0x80000000u) ? ~u : (u | 0x80000000u);
  return ~u;
}

inline uint64_t entry_key(uint32_t high, int64_t id) { return (static_cast<uint64_t>(high) << 32) | static_cast<uint32_t>(id); }

// The key of the last entry of the shortest beginning whose mass reaches `needed`; all entries if none does. n >= 1.
// `spare` holds n entries.
inline uint64_t last_key_of_mass(const Entry* entries, int64_t n, uint64_t needed, Entry* spare) {
  const Entry* from = entries;
  for (int shift = 56; n > 1; shift -= 8) {
    uint64_t sums[256] = {};
    int64_t counts[256] = {};
    for (int64_t i = 0; i < n; ++i) {
      const unsigned b = (from[i].key >> shift) & 255;
      sums[b] += from[i].mass;
      ++counts[b];
    }
    int bucket = -1, last = 0;
    uint64_t before = 0;
    for (int b = 0; b < 256; ++b) {
      if (!counts[b]) continue;
      last = b;
      if (before + sums[b] >= needed) {
        bucket = b;
        break;
      }
      before += sums[b];
    }
    if (bucket < 0) {  // the mass of all does not reach: everything belongs, so the last bucket's last entry ends it
      bucket = last;
      before -= sums[last];
      needed = ~0ull;
    } else {
      needed -= before;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i)
      if (((from[i].key >> shift) & 255) == static_cast<unsigned>(bucket)) spare[kept++] = from[i];
    from = spare;
    n = kept;
    if (shift == 0) break;
  }
  return from[0].key;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
