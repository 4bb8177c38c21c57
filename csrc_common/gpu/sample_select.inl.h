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

// Where the sum crosses: how much is needed of this bucket, and how many entries it has. Nothing is needed if all masses together
// do not reach the need.
struct Crossing {
  uint64_t rest;
  uint32_t bucket, count;
};

template <class Bucket, class Mass>
OCTAVO_GPU_FN void fill_histogram(const SampleRow& row, const SampleRoom& room, Bucket&& bucket, Mass&& mass) {
  for (int i = thread(); i < kBuckets; i += kSampleThreads) {
    room.masses[i] = 0;
    room.counts[i] = 0;
  }
  sync();
  each_token(row, [&](float y, uint32_t id) {
    const int b = bucket(y, id);
    if (b < 0) return;
    const uint64_t m = mass(y);
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

// bucket(y) never decreases along the order; need(sum of all masses) >= 1. The cut keeps everything if the need is not reached.
template <class Bucket, class Key, class Mass, class Need>
OCTAVO_GPU_FN SampleCut select(const SampleRow& row, const SampleRoom& room, Bucket&& bucket, Key&& key, Mass&& mass, Need&& need) {
  fill_histogram(row, room, [&](float y, uint32_t) { return bucket(y); }, mass);
  Crossing at = find_crossing(room, need);
  if (at.rest == 0) return {};
  const int first = static_cast<int>(at.bucket);
  uint64_t prefix = 0;
  int bits = 0;  // of (key, id) that are known
  const auto place = [&](float y, uint32_t id) { return static_cast<uint64_t>(key(y)) << 32 | id; };
  const auto is_there = [&](float y, uint32_t id) {
    return bucket(y) == first && (bits == 0 || place(y, id) >> (64 - bits) == prefix);
  };
  while (at.count > kListed) {
    fill_histogram(
        row, room,
        [&](float y, uint32_t id) {
          return is_there(y, id) ? static_cast<int>(place(y, id) >> (64 - bits - kDigitBits) & (kBuckets - 1)) : -1;
        },
        mass);
    const uint64_t rest = at.rest;
    at = find_crossing(room, [&](uint64_t) { return rest; });
    prefix = prefix << kDigitBits | at.bucket;
    bits += kDigitBits;
  }
  if (thread() == 0) room.words[2] = 0;
  sync();
  each_token(row, [&](float y, uint32_t id) {
    if (!is_there(y, id)) return;
    const uint64_t m = mass(y);
    if (m == 0) return;
    const uint32_t i = add_shared(room.words + 2, uint32_t{1});
    room.listed_keys()[i] = key(y);
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

// Buckets of 1/64 below the top; the last holds the rest.
OCTAVO_GPU_FN int bucket_below(float y, float top) {
  const float below = (top - y) * 64.0f;
  return static_cast<int>(below < kBuckets - 1 ? below : kBuckets - 1);
}

OCTAVO_GPU_FN SampleCut cut_best(const SampleRow& row, const SampleRoom& room, float top, uint64_t count) {
  return select(
      row, room, [&](float y) { return bucket_below(y, top); }, descending_key, [](float) { return uint64_t{1}; },
      [&](uint64_t) { return count; });
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

OCTAVO_GPU_FN void filter_typical(SampleRow* row, const SampleRoom& room, float top, float p) {
  uint64_t high = 0, low = 0, total = 0;
  each_token(*row, [&](float y, uint32_t) {
    const Mass m = mass_of(y, top);
    const uint64_t surprise = surprise_of(y, top);
    high += m.high * surprise;
    low += m.low * surprise;
    total += m.whole();
  });
  Kept kept = row->kept;
  kept.typical_top = top;
  total = block_sum(total, room);
  high = block_sum(high, room);
  kept.mean = mean_surprise(high, block_sum(low, room), total);
  kept.typical = select(
      *row, room, [&](float y) { return static_cast<int>(kept.distance(y) < 1u << 26 ? kept.distance(y) >> 15 : kBuckets - 1); },
      [&](float y) { return kept.distance(y); }, [&](float y) { return mass_of(y, top).whole(); },
      [&](uint64_t sum) { return needed_mass(sum, p); });
  kept.is_typical = true;
  row->kept = kept;
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
  if (!(top > -kInf)) return;
  if (filters.top_k > 0) row->kept.tighten(cut_best(*row, room, top, static_cast<uint64_t>(filters.top_k)));
  if (filters.typical_p < 1.0f) {
    filter_typical(row, room, top, filters.typical_p);
    top = best_of(*row, room).value;
  }
  if (filters.top_p < 1.0f)
    row->kept.tighten(select(
        *row, room, [&](float y) { return bucket_below(y, top); }, descending_key,
        [&](float y) { return mass_of(y, top).whole(); }, [&](uint64_t sum) { return needed_mass(sum, filters.top_p); }));
  if (filters.min_p > 0.0f) {
    row->kept.least = filters.min_p;
    row->kept.least_top = top;
  }
}

}  // namespace octavo::gpu
