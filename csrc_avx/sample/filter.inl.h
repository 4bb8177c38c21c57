// Step 4 of sampling: top-k, typical-p, top-p and min-p take tokens out of a row. The order of work is in docs/numerics.md.
//
// Nothing is sorted, and little is looked at: a bound is found that the last token to stay cannot be below (for top-k from the
// blocks' maxima, for top-p from sums of masses), and only tokens above it are put in order by radix (select.inl.h).
#pragma once
#include "sample/row.inl.h"
#include "sample/select.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr float kNoMass = 28.0f;  // so far below the top a token has no mass: exp(-28) < 2^-40

uint64_t mass_of(float share) { return static_cast<uint64_t>(static_cast<double>(share) * 0x1p40); }

// needed = floor(total * floor(p * 2^24) / 2^24), at least 1, in exact integers.
uint64_t needed_mass(uint64_t total, float p) {
  const auto parts = static_cast<uint64_t>(static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24);
  const auto needed = static_cast<uint64_t>((static_cast<unsigned __int128>(total) * parts) >> 24);
  return needed ? needed : 1;
}

// Entries of all tokens from `bound` up, in order of id; their number.
template <class Mass>
int64_t collect(const Row& row, float bound, Mass mass) {
  int64_t n = 0;
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima[b] < bound) continue;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i)
      if (row.x[i] >= bound && row.x[i] > -kInf) row.entries[n++] = {entry_key(descending_bits(row.x[i]), i), mass(i)};
  }
  return n;
}

// Takes out what is below `bound`.
void drop_below(const Row& row, float bound) {
  const V::F least = V::broadcast(bound), none = V::broadcast(-kInf);
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    float* x = row.x + b * kBlock;
    if (row.maxima[b] < bound) row.maxima[b] = -kInf;
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      const V::F v = V::load(x + i);
      V::store(x + i, V::select(V::lt(v, least), none, v));
    }
  }
}

// Takes out entries whose key is above `last`.
void drop_behind(const Row& row, int64_t n, uint64_t last) {
  for (int64_t i = 0; i < n; ++i)
    if (row.entries[i].key > last) row.x[static_cast<uint32_t>(row.entries[i].key)] = -kInf;
}

// A value that the k best tokens, or all there are, are not below: the k-th greatest of the blocks' maxima.
float bound_of_best(const Row& row, int64_t k) {
  const int64_t blocks = row.num_blocks();
  if (k > blocks) return -kInf;
  for (int64_t b = 0; b < blocks; ++b) row.entries[b] = {entry_key(descending_bits(row.maxima[b]), b), 1};
  return row.maxima[static_cast<uint32_t>(last_key_of_mass(row.entries, blocks, static_cast<uint64_t>(k), row.spare))];
}

void filter_top_k(const Row& row, int64_t k) {
  const float bound = bound_of_best(row, k);
  const int64_t n = collect(row, bound, [](int64_t) { return uint64_t{1}; });
  drop_below(row, bound);
  if (n > k) drop_behind(row, n, last_key_of_mass(row.entries, n, static_cast<uint64_t>(k), row.spare));
}

// Masses of all tokens that are not below `bound`, as one exact sum; `exps` holds exp(x - top) of every block looked at.
// A mass is taken in two halves of 20 bits, which lanes of 32 bits can add up.
uint64_t mass_from(const Row& row, float bound) {
  constexpr int L = V::kLanes;
  constexpr int64_t kFlush = 16;  // blocks; 16 * 64 masses of one lane stay below 2^31
  const V::F least = V::broadcast(bound), scale = V::broadcast(0x1p20f), one = V::broadcast(1.0f);
  const auto whole = [&](V::F v) {  // floor
    const V::F near = V::round_even(v);
    return V::select(V::gt(near, v), V::sub(near, one), near);
  };
  V::I high = V::ibroadcast(0), low = V::ibroadcast(0);
  uint64_t total = 0;
  int64_t waiting = 0;
  const auto flush = [&] {
    alignas(64) int32_t lanes[2][L];
    V::store(reinterpret_cast<float*>(lanes[0]), V::from_bits(high));
    V::store(reinterpret_cast<float*>(lanes[1]), V::from_bits(low));
    for (int i = 0; i < L; ++i) total += (static_cast<uint64_t>(lanes[0][i]) << 20) + static_cast<uint64_t>(lanes[1][i]);
    high = low = V::ibroadcast(0);
    waiting = 0;
  };
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima[b] < bound) continue;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; i += L) {
      const V::F share = V::select(V::lt(V::load(row.x + i), least), V::zero(), V::load(row.exps + i));
      const V::F scaled = V::mul(share, scale), first = whole(scaled);
      high = V::iadd(high, V::cvt_i32(first));
      low = V::iadd(low, V::cvt_i32(whole(V::mul(V::sub(scaled, first), scale))));
    }
    if (++waiting == kFlush) flush();
  }
  flush();
  return total;
}

void filter_top_p(const Row& row, float p) {
  const float top = top_of(row);
  const V::F t = V::broadcast(top);
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima[b] < top - kNoMass) continue;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; i += V::kLanes)
      V::store(row.exps + i, vec::exp<V>(V::sub(V::load(row.x + i), t)));
  }
  const uint64_t needed = needed_mass(mass_from(row, top - kNoMass), p);
  float bound = top - 0.5f;
  for (float below = 1.0f; below < kNoMass && mass_from(row, bound) < needed; below *= 2.0f) bound = top - below;
  if (mass_from(row, bound) < needed) bound = top - kNoMass;
  const int64_t n = collect(row, bound, [&](int64_t i) { return mass_of(row.exps[i]); });
  drop_below(row, bound);
  drop_behind(row, n, last_key_of_mass(row.entries, n, needed, row.spare));
}

// Surprise below the top's in 2^-20 units, at most 64.
uint64_t surprise_of(float value, float top) {
  const float below = top - value;
  return static_cast<uint64_t>(static_cast<double>(below < 64.0f ? below : 64.0f) * 0x1p20);
}

void filter_typical(const Row& row, float p) {
  const float top = top_of(row);
  uint64_t total = 0;
  unsigned __int128 weighted = 0;
  int64_t n = 0;
  for (int64_t i = 0; i < row.a.vocab; ++i) {
    if (!(row.x[i] > -kInf)) continue;
    const uint64_t mass = mass_of(vec::exp<vec::F32x1>(row.x[i] - top));
    total += mass;
    weighted += static_cast<unsigned __int128>(mass) * surprise_of(row.x[i], top);
    row.entries[n++] = {static_cast<uint64_t>(i), mass};
  }
  const auto mean = static_cast<int64_t>(weighted / total);
  for (int64_t j = 0; j < n; ++j) {
    const auto i = static_cast<int64_t>(row.entries[j].key);
    const int64_t away = static_cast<int64_t>(surprise_of(row.x[i], top)) - mean;
    row.entries[j].key = entry_key(static_cast<uint32_t>(away < 0 ? -away : away), i);
  }
  drop_behind(row, n, last_key_of_mass(row.entries, n, needed_mass(total, p), row.spare));
  find_maxima(row);
}

void filter_min_p(const Row& row, float p) {
  const V::F t = V::broadcast(top_of(row)), least = V::broadcast(p), none = V::broadcast(-kInf);
  for (int64_t i = 0; i < row.num_blocks() * kBlock; i += V::kLanes) {
    const V::F v = V::load(row.x + i);
    V::store(row.x + i, V::select(V::lt(vec::exp<V>(V::sub(v, t)), least), none, v));
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
