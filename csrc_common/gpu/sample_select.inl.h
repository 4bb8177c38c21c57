// Selection without sorting: where the beginning of an order ends, by count or by mass.
//
// Entries are ordered by a 32-bit key, smaller first, and then by token id; each has an integer mass. The shortest beginning
// whose mass reaches a need is found by a histogram over coarse buckets of the order; the few entries of the bucket where the
// sum crosses are listed in shared memory, where each adds up the masses before its own. Of a bucket with more entries than the
// list holds, digits of (key, id) make more histograms first. Exact whatever the order of summation, since masses are integers.
#pragma once

#include "gpu/sample_values.inl.h"

namespace octavo::gpu {

constexpr int kDigitBits = 11;  // kBuckets

// What is selected by: an order, and masses.
struct Order {
  bool is_typical;  // by distance from the mean surprise, else by value, greatest first
  bool is_counted;  // each entry has mass 1, else floor(exp(y - top) * 2^40)
  float top;
  uint32_t mean;

  OCTAVO_GPU_FN uint32_t key(float y) const { return is_typical ? distance_of(y, top, mean) : descending_key(y); }
  OCTAVO_GPU_FN uint64_t mass(float y) const { return is_counted ? 1 : mass_of(y, top).whole(); }
  // Never decreases along the order: steps of 2^15 of a distance, of 1/64 below the top; the last bucket holds the rest.
  OCTAVO_GPU_FN int bucket(float y) const {
    if (is_typical) {
      const uint32_t steps = distance_of(y, top, mean) >> 15;
      return static_cast<int>(steps < kBuckets - 1 ? steps : kBuckets - 1);
    }
    const float below = (top - y) * 64.0f;
    return static_cast<int>(below < kBuckets - 1 ? below : kBuckets - 1);
  }
};

// Where the sum crosses: how much is needed of this bucket, and how many entries it has. Nothing is needed if all masses together
// do not reach the need.
struct Crossing {
  uint64_t rest;
  uint32_t bucket, count;
};

template <class Bucket>
OCTAVO_GPU_FN void fill_histogram(const SampleRow& row, const SampleRoom& room, const Order& order, Bucket&& bucket) {
  for (int i = thread(); i < kBuckets; i += kSampleThreads) {
    room.masses[i] = 0;
    room.counts[i] = 0;
  }
  sync();
  each_token(row, [&](float y, uint32_t id) {
    const int b = bucket(y, id);
    if (b < 0) return;
    const uint64_t m = order.mass(y);
    if (m == 0) return;
    add_shared(room.masses + b, m);
    add_shared(room.counts + b, uint32_t{1});
  });
  sync();
}

template <class Need>
OCTAVO_GPU_FN Crossing find_crossing(const SampleRoom& room, Need&& need) {
  const int first = thread() * kBucketsEach;
  uint64_t own = 0;
  for (int i = 0; i < kBucketsEach; ++i) own += room.masses[first + i];
  const Prefix sums = prefix_sum(own, room);
  const uint64_t needed = need(sums.total);
  if (sums.total < needed) return {0, 0, 0};
  if (sums.before < needed && needed <= sums.before + own) {
    uint64_t rest = needed - sums.before;
    int i = first;
    for (; room.masses[i] < rest; ++i) rest -= room.masses[i];
    *room.rest = rest;
    room.words[0] = static_cast<uint32_t>(i);
    room.words[1] = room.counts[i];
  }
  sync();
  const Crossing found{*room.rest, room.words[0], room.words[1]};
  sync();
  return found;
}

// need(sum of all masses) >= 1. The cut keeps everything if the need is not reached.
template <class Need>
OCTAVO_GPU_FN SampleCut select(const SampleRow& row, const SampleRoom& room, const Order& order, Need&& need) {
  Crossing at{0, 0, 0};
  int first = -1;
  uint64_t prefix = 0;
  int bits = 0;  // of (key, id) that are known
  const auto place = [&](float y, uint32_t id) { return static_cast<uint64_t>(order.key(y)) << 32 | id; };
  const auto is_there = [&](float y, uint32_t id) {
    return order.bucket(y) == first && (bits == 0 || place(y, id) >> (64 - bits) == prefix);
  };
  do {
    fill_histogram(row, room, order, [&](float y, uint32_t id) {
      if (first < 0) return order.bucket(y);
      return is_there(y, id) ? static_cast<int>(place(y, id) >> (64 - bits - kDigitBits) & (kBuckets - 1)) : -1;
    });
    const uint64_t rest = at.rest;
    at = find_crossing(room, [&](uint64_t total) { return first < 0 ? need(total) : rest; });
    if (at.rest == 0) return {};
    if (first < 0) {
      first = static_cast<int>(at.bucket);
    } else {
      prefix = prefix << kDigitBits | at.bucket;
      bits += kDigitBits;
    }
  } while (at.count > kListed);
  if (thread() == 0) room.words[2] = 0;
  sync();
  each_token(row, [&](float y, uint32_t id) {
    if (!is_there(y, id)) return;
    const uint64_t m = order.mass(y);
    if (m == 0) return;
    const uint32_t i = add_shared(room.words + 2, uint32_t{1});
    room.listed_keys()[i] = order.key(y);
    room.listed_ids()[i] = id;
    room.masses[i] = m;
  });
  sync();
  const int count = static_cast<int>(at.count);
  for (int e = thread(); e < count; e += kSampleThreads) {
    const SampleCut own{room.listed_keys()[e], room.listed_ids()[e]};
    uint64_t upto = 0;
    for (int i = 0; i < count; ++i)
      if (own.keeps(room.listed_keys()[i], room.listed_ids()[i])) upto += room.masses[i];
    if (upto >= at.rest && upto - room.masses[e] < at.rest) {
      room.words[0] = own.key;
      room.words[1] = own.id;
    }
  }
  sync();
  const SampleCut cut{room.words[0], room.words[1]};
  sync();
  return cut;
}

// floor(total * floor(p * 2^24) / 2^24), at least 1, in exact integers; p < 1.
OCTAVO_GPU_FN uint64_t needed_mass(uint64_t total, float p) {
  const auto parts = static_cast<uint64_t>(static_cast<uint32_t>((p > 0.0f ? p : 0.0f) * 0x1p24f));
  const uint64_t needed = (total >> 24) * parts + (((total & 0xFFFFFFu) * parts) >> 24);
  return needed ? needed : 1;
}

// floor((high * 2^20 + low) / total), which is at most 2^26, the greatest surprise.
OCTAVO_GPU_FN uint32_t mean_surprise(uint64_t high, uint64_t low, uint64_t total) {
  const unsigned __int128 weighted = (static_cast<unsigned __int128>(high) << 20) + low;
  uint32_t mean = 0;
  for (uint32_t bit = 1u << 26; bit; bit >>= 1)
    if (static_cast<unsigned __int128>(total) * (mean | bit) <= weighted) mean |= bit;
  return mean;
}

OCTAVO_GPU_FN uint32_t mean_surprise(const SampleRow& row, const SampleRoom& room, float top) {
  uint64_t high = 0, low = 0, total = 0;
  each_token(row, [&](float y, uint32_t) {
    const Mass m = mass_of(y, top);
    const uint64_t surprise = surprise_of(y, top);
    high += m.high * surprise;
    low += m.low * surprise;
    total += m.whole();
  });
  total = block_sum(total, room);
  high = block_sum(high, room);
  return mean_surprise(high, block_sum(low, room), total);
}

// What of step 4 a row asks for.
struct Filters {
  int64_t top_k;
  float typical_p, top_p, min_p;

  OCTAVO_GPU_FN Filters(const SampleArgs& a, int64_t r)
      : top_k(a.top_k[r] > 0 && a.top_k[r] < a.vocab ? a.top_k[r] : 0),
        typical_p(a.typical_p[r] + 0.0f),
        top_p(a.top_p[r] + 0.0f),
        min_p(a.min_p[r] + 0.0f) {}
  OCTAVO_GPU_FN bool are_any() const { return top_k > 0 || typical_p < 1.0f || top_p < 1.0f || min_p > 0.0f; }
};

// Step 4 on a tempered row, whose greatest value is `top`.
OCTAVO_GPU_FN void filter(const Filters& filters, const SampleRoom& room, float top, SampleRow* row) {
  enum { kTopK, kTypical, kTopP, kEnd };
  if (!(top > -kInf)) return;
#pragma unroll 1
  for (int kind = kTopK; kind < kEnd; ++kind) {  // one body, for the size of the code
    const float p = kind == kTypical ? filters.typical_p : filters.top_p;
    if (kind == kTopK ? filters.top_k == 0 : !(p < 1.0f)) continue;
    Order order{kind == kTypical, kind == kTopK, top, 0};
    if (order.is_typical) order.mean = mean_surprise(*row, room, top);
    const SampleCut cut = select(*row, room, order, [&](uint64_t total) {
      return order.is_counted ? static_cast<uint64_t>(filters.top_k) : needed_mass(total, p);
    });
    if (order.is_typical) {
      row->kept.is_typical = true;
      row->kept.typical = cut;
      row->kept.typical_top = top;
      row->kept.mean = order.mean;
      top = best_of(*row, room).value;
    } else {
      row->kept.tighten(cut);
    }
  }
  if (filters.min_p > 0.0f) {
    row->kept.least = filters.min_p;
    row->kept.least_top = top;
  }
}

}  // namespace octavo::gpu
