// What the threads of a block that samples a row do together: sums, prefix sums, the best token.
#pragma once

#include "gpu/rows.inl.h"

namespace octavo::gpu {

constexpr int kSampleThreads = 512;
constexpr int kSampleWaves = kSampleThreads / kWave;
constexpr int kBuckets = 2048;  // of a histogram
constexpr int kBucketsEach = kBuckets / kSampleThreads;
constexpr int kListed = kBuckets / 2;  // entries that a list in the place of the histogram holds
constexpr float kLargest = 0x1.fffffep+127f;
constexpr float kInf = __builtin_inff();

// Memory of a block. A histogram gives way to the list of the entries of one of its buckets.
struct SampleRoom {
  uint64_t* masses;  // [kBuckets]
  uint32_t* counts;  // [kBuckets]
  uint64_t* waves;   // [kSampleThreads / 32]
  uint64_t* rest;    // [1]
  uint32_t* words;   // [4]

  OCTAVO_GPU_FN uint32_t* listed_keys() const { return counts; }
  OCTAVO_GPU_FN uint32_t* listed_ids() const { return counts + kListed; }
};

struct Prefix {
  uint64_t before, total;
};

// The sum over the threads before this one, and over all.
OCTAVO_GPU_FN Prefix prefix_sum(uint64_t x, const SampleRoom& room) {
  uint64_t sum = x;
  for (int apart = 1; apart < kWave; apart *= 2) {
    const uint64_t other = shuffle(sum, (lane() - apart) & (kWave - 1));
    if (lane() >= apart) sum += other;
  }
  if (lane() == kWave - 1) room.waves[wave()] = sum;
  sync();
  Prefix found{sum - x, 0};
  for (int w = 0; w < kSampleWaves; ++w) {
    if (w < wave()) found.before += room.waves[w];
    found.total += room.waves[w];
  }
  sync();
  return found;
}

OCTAVO_GPU_FN uint64_t block_sum(uint64_t x, const SampleRoom& room) {
  for (int apart = kWave / 2; apart > 0; apart /= 2) x += shuffle(x, lane() ^ apart);
  if (lane() == 0) room.waves[wave()] = x;
  sync();
  uint64_t total = 0;
  for (int w = 0; w < kSampleWaves; ++w) total += room.waves[w];
  sync();
  return total;
}

// The greatest value and the lowest id that has it; -inf and -1 where there is none.
struct BestToken {
  float value = -kInf;
  int32_t id = -1;

  OCTAVO_GPU_FN void offer(float v, int32_t i) {
    const bool is_better = i >= 0 && (id < 0 || v > value || (v == value && i < id));
    value = is_better ? v : value;
    id = is_better ? i : id;
  }
};

OCTAVO_GPU_FN BestToken block_best(BestToken best, const SampleRoom& room) {
  for (int apart = kWave / 2; apart > 0; apart /= 2) {
    const float v = shuffle_xor(best.value, apart);
    best.offer(v, shuffle_xor(best.id, apart));
  }
  if (lane() == 0)
    room.waves[wave()] =
        static_cast<uint64_t>(static_cast<uint32_t>(best.id)) << 32 | static_cast<uint32_t>(word_of_float(best.value));
  sync();
  for (int w = 0; w < kSampleWaves; ++w)
    best.offer(float_of_word(static_cast<int32_t>(room.waves[w])), static_cast<int32_t>(room.waves[w] >> 32));
  sync();
  return best;
}

}  // namespace octavo::gpu
