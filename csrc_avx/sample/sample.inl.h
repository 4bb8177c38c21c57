// sample: one token per row of logits. Twin of platforms/reference/sample.py; the order of work is in docs/numerics.md.
//
// A plain greedy row is one scan. Otherwise the row is copied into the thread's work area, sparse lists are applied, filters
// take tokens out, and the noise of those that can still win is added: a draw decides that before any logarithm is taken.
#include <cstdint>

#include "contract/sample.h"
#include "sample/filter.inl.h"
#include "sample/noise.inl.h"
#include "sample/row.inl.h"
#include "sample/select.inl.h"
#include "vec/math.inl.h"
#include "vec/native.h"
#include "vec/sum16.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kVocabSegment = 4096;

// The best sum of value and noise so far, the lowest id of equals.
struct Winner {
  float most;
  int32_t id;

  void meet(float value, uint32_t token, const NoiseKey& key) {
    const float sum = value + gumbel(noise_draw(key, token));
    const auto i = static_cast<int32_t>(token);
    if (sum > most || (sum == most && i < id)) {
      most = sum;
      id = i;
    }
  }
};

// Step 5: greatest value + Gumbel noise, lowest id of equals. Of a block only tokens are looked at whose draw lets the block's
// greatest value reach the best sum so far.
int32_t draw(const Row& row) {
  constexpr int L = V::kLanes;
  using W = Words<V>;
  const NoiseKey key{row.a.seed[row.r], row.a.choice[row.r], row.a.position[row.r]};
  const int32_t first = best_id(row);
  if (first < 0) return -1;
  Winner winner{-kInf, first};
  winner.meet(row.x[first], static_cast<uint32_t>(first), key);
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    const float top = row.maxima[b], most = winner.most;
    if (!(top + kMaxGumbel >= most) || !(top > -kInf)) continue;
    const float rounding = (most < 0.0f ? -most : most) * 0x1p-22f;
    const uint32_t least = least_draw(most - top - rounding);
    for (int64_t at = b * kBlock; at < (b + 1) * kBlock; at += 4 * L) {
      W::U words[4];
      noise_words<V>(key, static_cast<uint32_t>(at), words);
      if (!(W::any_from(words[0], least) || W::any_from(words[1], least) || W::any_from(words[2], least) ||
            W::any_from(words[3], least)))
        continue;
      uint32_t draws[4][L];
      for (int j = 0; j < 4; ++j) W::store(draws[j], words[j]);
      for (int i = 0; i < 4 * L; ++i)
        if (draws[i & 3][i >> 2] >= least && row.x[at + i] > -kInf)
          winner.meet(row.x[at + i], static_cast<uint32_t>(at + i), key);
    }
  }
  return winner.id;
}

// log of the sum of exp(x - top): 16 lanes per segment of 4,096 ids, segments added in order. What may not be drawn adds +0.
float log_total(const Row& row, float top, float* terms) {
  constexpr int L = V::kLanes;
  const V::F t = V::broadcast(top);
  float total = 0.0f;
  for (int64_t start = 0; start < row.a.vocab; start += kVocabSegment) {
    const int64_t n = row.a.vocab - start < kVocabSegment ? row.a.vocab - start : kVocabSegment;
    for (int64_t i = 0; i < n; i += L) V::store(terms + i, vec::exp<V>(V::sub(V::load(row.x + start + i), t)));
    total = total + vec::sum16<V>(terms, n);
  }
  return vec::log<vec::F32x1>(total);
}

// Logprob and rank of the drawn token and the best tokens, over what may be drawn.
void report(const Row& row, int32_t token, float* terms) {
  const SampleArgs& a = row.a;
  const float top = top_of(row), own = row.x[token];
  const float log_sum = log_total(row, top, terms);
  a.logprobs[row.r] = own > -kInf ? (own - top) - log_sum : __builtin_nanf("");
  int32_t rank = 1;
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima[b] < own) continue;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) rank += row.x[i] > own || (row.x[i] == own && i < token);
  }
  a.ranks[row.r] = rank;
  int64_t want = a.num_logprobs[row.r];
  if (want <= 0) return;
  const int64_t n = collect(row, bound_of_best(row, want), [](int64_t) { return uint64_t{1}; });
  want = want < n ? want : n;
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
  const bool is_drawn = a.temperature[r] > 0.0f;
  if (is_drawn) divide(row, a.temperature[r]);
  find_maxima(row);
  if (is_drawn && top_of(row) > -kInf) {
    if (a.top_k[r] > 0) filter_top_k(row, a.top_k[r]);
    if (a.typical_p[r] < 1.0f) filter_typical(row, a.typical_p[r]);
    if (a.top_p[r] < 1.0f) filter_top_p(row, a.top_p[r]);
    if (a.min_p[r] > 0.0f) filter_min_p(row, a.min_p[r]);
  }
  const int32_t token = is_drawn ? draw(row) : best_id(row);
  a.ids[r] = token;
  if (token < 0 || a.num_logprobs[r] < 0) return;
  if (a.raw_logprobs) {
    clean(row);
    find_maxima(row);
  }
  report(row, token, terms);
}

}  // namespace

void sample(const void* raw, const Step&, const Lane& lane) {
  const auto& a = *static_cast<const SampleArgs*>(raw);
  auto* work = static_cast<uint8_t*>(a.work) + lane.thread * a.work_bytes;
  const int64_t padded = (a.vocab + kBlock - 1) / kBlock * kBlock;
  auto* entries = reinterpret_cast<Entry*>(work);
  auto* x = reinterpret_cast<float*>(entries + 2 * padded);
  auto* exps = x + padded;
  auto* terms = static_cast<float*>(lane.scratch);
  for (int64_t begin, end; lane.claim(a.num_rows, 1, &begin, &end);)
    for (int64_t r = begin; r < end; ++r) {
      const float* logits = a.logits + r * a.ld;
      if (is_plain(a, r))
        a.ids[r] = greedy(logits, a.vocab);
      else
        sample_row(Row{a, r, logits, x, exps, exps + padded, entries, entries + padded}, terms);
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
