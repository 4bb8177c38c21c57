// sample: one token per row of logits. Twin of platforms/reference/sample.py; the order of work is in docs/numerics.md.
//
// A plain greedy row is one scan. Otherwise the row is copied into the thread's work area, sparse lists are applied, and the
// filters select by radix (select.inl.h) instead of sorting. Noise is drawn only for tokens that can still win: the noise of
// any token is below kMaxGumbel, so a value more than that below the best sum so far is skipped without changing the result.
#include <cstdint>
#include <cstring>

#include "contract/sample.h"
#include "sample/noise.inl.h"
#include "sample/select.inl.h"
#include "vec/math.inl.h"
#include "vec/native.h"
#include "vec/sum16.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;
constexpr int64_t kVocabSegment = 4096;
constexpr float kLargest = 0x1.fffffep+127f;
constexpr float kInf = __builtin_inff();

struct Row {
  const SampleArgs& a;
  int64_t r;
  const float* raw;   // the logits as given
  float* x;           // values
  uint8_t* kept;      // 1 = may be drawn
  Entry* entries;
  Entry* spare;
};

inline float flushed(float v) { return v + 0.0f; }  // DAZ and FTZ make it the contract's flush

// Infinities, which penalties or a tiny temperature can make, become the largest float32 of their sign.
inline float bounded(float v) { return v > kLargest ? kLargest : v < -kLargest ? -kLargest : v; }

// Step 0: NaN and -inf do not exist, +inf becomes the largest float32.
void clean(const Row& row) {
  for (int64_t i = 0; i < row.a.vocab; ++i) {
    const float v = row.raw[i];
    const bool exists = v > -kInf;
    row.kept[i] = exists;
    row.x[i] = exists ? flushed(v < kLargest ? v : kLargest) : 0.0f;
  }
}

// Steps 1 and 2: mask, bans, bias, penalties.
void penalize(const Row& row) {
  const SampleArgs& a = row.a;
  const int64_t r = row.r;
  if (a.mask_row[r] >= 0) {
    const uint32_t* mask = a.masks + a.mask_row[r] * a.mask_words;
    for (int64_t i = 0; i < a.vocab; ++i) row.kept[i] &= (mask[i >> 5] >> (i & 31)) & 1u;
  }
  for (int32_t j = a.banned_start[r]; j < a.banned_start[r + 1]; ++j) row.kept[a.banned_ids[j]] = 0;
  for (int32_t j = a.bias_start[r]; j < a.bias_start[r + 1]; ++j)
    row.x[a.bias_ids[j]] = bounded(row.x[a.bias_ids[j]] + a.bias_values[j]);
  const float repetition = a.repetition[r], presence = a.presence[r], frequency = a.frequency[r];
  for (int32_t j = a.count_start[r]; j < a.count_start[r + 1]; ++j) {
    float v = row.x[a.count_ids[j]];
    if (repetition != 1.0f) v = v > 0.0f ? v / repetition : v * repetition;
    if (a.count_output[j] > 0) {
      if (presence != 0.0f) v = v - presence;
      if (frequency != 0.0f) v = v - frequency * static_cast<float>(a.count_output[j]);
    }
    row.x[a.count_ids[j]] = bounded(v);
  }
}

// The allowed id of greatest value, lowest of equals; -1 if none.
int32_t best_id(const float* x, const uint8_t* kept, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i)
    if (kept[i] && (best < 0 || x[i] > x[best])) best = i;
  return static_cast<int32_t>(best);
}

// The same over raw logits that need no work: +inf counts as the largest float32, NaN and -inf do not exist.
int32_t greedy(const float* x, int64_t n) {
  constexpr int L = V::kLanes;
  V::F top = V::broadcast(-kInf);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const V::F v = V::load(x + i);
    top = V::select(V::gt(v, top), v, top);
  }
  float lanes[L];
  V::store(lanes, top);
  float best = -kInf;
  for (float lane : lanes) best = lane > best ? lane : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  if (!(best > -kInf)) return -1;
  const float least = best < kLargest ? best : kLargest;
  for (i = 0; i < n; ++i)
    if (x[i] >= least) return static_cast<int32_t>(i);
  return -1;
}

float top_of(const Row& row) {
  const int32_t at = best_id(row.x, row.kept, row.a.vocab);
  return at < 0 ? -kInf : row.x[at];
}

bool any_kept(const Row& row) { return std::memchr(row.kept, 1, static_cast<size_t>(row.a.vocab)) != nullptr; }

uint64_t mass_of(float value, float top) { return static_cast<uint64_t>(static_cast<double>(vec::exp<vec::F32x1>(value - top)) * 0x1p40); }

// needed = floor(total * floor(p * 2^24) / 2^24), at least 1, in exact integers.
uint64_t needed_mass(uint64_t total, float p) {
  const auto parts = static_cast<uint64_t>(static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24);
  const auto needed = static_cast<uint64_t>((static_cast<unsigned __int128>(total) * parts) >> 24);
  return needed ? needed : 1;
}

// Keeps only entries whose key is at most `last`.
void keep_to(const Row& row, int64_t n, uint64_t last) {
  for (int64_t i = 0; i < n; ++i)
    if (row.entries[i].key > last) row.kept[static_cast<uint32_t>(row.entries[i].key)] = 0;
}

void filter_top_k(const Row& row, int64_t k) {
  int64_t n = 0;
  for (int64_t i = 0; i < row.a.vocab; ++i)
    if (row.kept[i]) row.entries[n++] = {entry_key(descending_bits(row.x[i]), i), 1};
  if (n > k) keep_to(row, n, last_key_of_mass(row.entries, n, static_cast<uint64_t>(k), row.spare));
}

void filter_top_p(const Row& row, float p) {
  const float top = top_of(row);
  int64_t n = 0;
  uint64_t total = 0;
  for (int64_t i = 0; i < row.a.vocab; ++i)
    if (row.kept[i]) {
      const uint64_t mass = mass_of(row.x[i], top);
      row.entries[n++] = {entry_key(descending_bits(row.x[i]), i), mass};
      total += mass;
    }
  keep_to(row, n, last_key_of_mass(row.entries, n, needed_mass(total, p), row.spare));
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
  for (int64_t i = 0; i < row.a.vocab; ++i)
    if (row.kept[i]) {
      const uint64_t mass = mass_of(row.x[i], top);
      total += mass;
      weighted += static_cast<unsigned __int128>(mass) * surprise_of(row.x[i], top);
    }
  const auto mean = static_cast<int64_t>(weighted / total);
  int64_t n = 0;
  for (int64_t i = 0; i < row.a.vocab; ++i)
    if (row.kept[i]) {
      const int64_t away = static_cast<int64_t>(surprise_of(row.x[i], top)) - mean;
      row.entries[n++] = {entry_key(static_cast<uint32_t>(away < 0 ? -away : away), i), mass_of(row.x[i], top)};
    }
  keep_to(row, n, last_key_of_mass(row.entries, n, needed_mass(total, p), row.spare));
}

void filter_min_p(const Row& row, float p) {
  const float top = top_of(row);
  for (int64_t i = 0; i < row.a.vocab; ++i)
    if (row.kept[i] && !(vec::exp<vec::F32x1>(row.x[i] - top) >= p)) row.kept[i] = 0;
}

// Step 5: greatest value + Gumbel noise, lowest id of equals.
int32_t draw(const Row& row) {
  const NoiseKey key{row.a.seed[row.r], row.a.choice[row.r], row.a.position[row.r]};
  int32_t best = best_id(row.x, row.kept, row.a.vocab);
  if (best < 0) return -1;
  float most = row.x[best] + gumbel(noise_draw(key, static_cast<uint32_t>(best)));
  for (int64_t i = 0; i < row.a.vocab; ++i) {
    if (!row.kept[i] || row.x[i] + kMaxGumbel < most) continue;
    const float sum = row.x[i] + gumbel(noise_draw(key, static_cast<uint32_t>(i)));
    if (sum > most || (sum == most && i < best)) {
      most = sum;
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

// log of the sum of exp(x - top) over kept values: 16 lanes per segment of 4,096 ids, segments added in order.
float log_total(const Row& row, float top, float* terms) {
  constexpr int L = V::kLanes;
  const V::F t = V::broadcast(top);
  float total = 0.0f;
  for (int64_t start = 0; start < row.a.vocab; start += kVocabSegment) {
    const int64_t n = row.a.vocab - start < kVocabSegment ? row.a.vocab - start : kVocabSegment;
    int64_t i = 0;
    for (; i + L <= n; i += L) V::store(terms + i, vec::exp<V>(V::sub(V::load(row.x + start + i), t)));
    for (; i < n; ++i) terms[i] = vec::exp<vec::F32x1>(row.x[start + i] - top);
    for (i = 0; i < n; ++i) terms[i] = row.kept[start + i] ? terms[i] : 0.0f;
    total = total + vec::sum16<V>(terms, n);
  }
  return vec::log<vec::F32x1>(total);
}

// Logprob and rank of the drawn token and the best tokens, over the row's kept values.
void report(const Row& row, int32_t token, float* terms) {
  const SampleArgs& a = row.a;
  const float top = top_of(row);
  const float log_sum = log_total(row, top, terms);
  a.logprobs[row.r] = row.kept[token] ? (row.x[token] - top) - log_sum : __builtin_nanf("");
  const uint64_t own = entry_key(descending_bits(row.x[token]), token);
  int64_t n = 0;
  int32_t rank = 1;
  for (int64_t i = 0; i < a.vocab; ++i)
    if (row.kept[i]) {
      const uint64_t key = entry_key(descending_bits(row.x[i]), i);
      rank += key < own;
      row.entries[n++] = {key, 1};
    }
  a.ranks[row.r] = rank;
  int64_t want = a.num_logprobs[row.r] < n ? a.num_logprobs[row.r] : n;
  if (want <= 0) return;
  const uint64_t last = last_key_of_mass(row.entries, n, static_cast<uint64_t>(want), row.spare);
  uint64_t* best = reinterpret_cast<uint64_t*>(row.spare);
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = row.entries[i].key;
    if (key > last) continue;
    int64_t at = found++;
    for (; at > 0 && best[at - 1] > key; --at) best[at] = best[at - 1];
    best[at] = key;
  }
  for (int64_t j = 0; j < want; ++j) {
    const auto id = static_cast<uint32_t>(best[j]);
    a.best_ids[row.r * a.max_logprobs + j] = static_cast<int32_t>(id);
    a.best_logprobs[row.r * a.max_logprobs + j] = (row.x[id] - top) - log_sum;
  }
}

bool is_plain(const SampleArgs& a, int64_t r) {
  return a.temperature[r] == 0.0f && a.num_logprobs[r] < 0 && a.mask_row[r] < 0 && a.banned_start[r] == a.banned_start[r + 1] &&
         a.bias_start[r] == a.bias_start[r + 1] && a.count_start[r] == a.count_start[r + 1];
}

void sample_row(const Row& row, float* terms) {
  const SampleArgs& a = row.a;
  const int64_t r = row.r;
  clean(row);
  penalize(row);
  int32_t token;
  if (a.temperature[r] > 0.0f) {
    for (int64_t i = 0; i < a.vocab; ++i) row.x[i] = bounded(row.x[i] / a.temperature[r]);
    if (a.top_k[r] > 0) filter_top_k(row, a.top_k[r]);
    if (a.typical_p[r] < 1.0f && any_kept(row)) filter_typical(row, a.typical_p[r]);
    if (a.top_p[r] < 1.0f && any_kept(row)) filter_top_p(row, a.top_p[r]);
    if (a.min_p[r] > 0.0f && any_kept(row)) filter_min_p(row, a.min_p[r]);
    token = draw(row);
  } else {
    token = best_id(row.x, row.kept, a.vocab);
  }
  a.ids[r] = token;
  if (token < 0 || a.num_logprobs[r] < 0) return;
  if (a.raw_logprobs) clean(row);
  report(row, token, terms);
}

}  // namespace

void sample(const void* raw, const Step&, const Lane& lane) {
  const auto& a = *static_cast<const SampleArgs*>(raw);
  auto* work = static_cast<uint8_t*>(a.work) + lane.thread * a.work_bytes;
  const int64_t padded = (a.vocab + 63) / 64 * 64;
  auto* entries = reinterpret_cast<Entry*>(work);
  auto* x = reinterpret_cast<float*>(entries + 2 * padded);
  auto* kept = reinterpret_cast<uint8_t*>(x + padded);
  for (int64_t begin, end; lane.claim(a.num_rows, 1, &begin, &end);)
    for (int64_t r = begin; r < end; ++r) {
      const float* logits = a.logits + r * a.ld;
      if (is_plain(a, r))
        a.ids[r] = greedy(logits, a.vocab);
      else
        sample_row(Row{a, r, logits, x, kept, entries, entries + padded}, static_cast<float*>(lane.scratch));
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
