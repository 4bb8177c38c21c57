// Masses, the integers that top-p and typical-p add up (docs/numerics.md, "Sampling", 4): floor(exp(y - top) * 2^40).
//
// Over a whole vocabulary the mass is taken in two 20-bit halves, which float32 and int32 lanes hold exactly.
#pragma once
#include "sample/list.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

inline uint64_t mass_of(float e) { return static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(e) * 0x1p40)); }

// needed = floor(total * floor(p * 2^24) / 2^24), at least 1, in exact integers.
inline uint64_t needed_mass(uint64_t total, float p) {
  const auto parts = static_cast<uint64_t>(static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24);
  const auto needed = static_cast<uint64_t>((static_cast<unsigned __int128>(total) * parts) >> 24);
  return needed ? needed : 1;
}

// The sum of at most kMost masses: 2^10 per lane, so that no half overflows.
struct Masses {
  static constexpr int64_t kMost = 1024 * kLanes;
  I high = V::ibroadcast(0), low = V::ibroadcast(0);

  void add(F e) {
    const F scaled = V::mul(e, V::broadcast(0x1p20f));
    const I whole = V::cut_i32(scaled);
    const F rest = V::mul(V::sub(scaled, V::cvt_f32(whole)), V::broadcast(0x1p20f));
    high = V::iadd(high, whole);
    low = V::iadd(low, V::cut_i32(rest));
  }
  uint64_t total() const {
    uint32_t highs[kLanes], lows[kLanes];
    std::memcpy(highs, &high, sizeof highs);
    std::memcpy(lows, &low, sizeof lows);
    uint64_t sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += (static_cast<uint64_t>(highs[i]) << 20) + lows[i];
    return sum;
  }
};

// Fills a list's e = exp(y - top); returns its mass.
inline uint64_t weigh_list(const List& list, float top) {
  const F t = V::broadcast(top);
  uint64_t total = 0;
  for (int64_t piece = 0; piece < list.n; piece += Masses::kMost) {
    Masses masses;
    const int64_t end = smaller(piece + Masses::kMost, list.n);
    for (int64_t i = piece; i < end; i += kLanes) {
      const F e = vec::exp_below<V>(V::sub(load_values(list.y + i, list.n - i), t));
      V::store(list.e + i, e);
      masses.add(e);
    }
    total += masses.total();
  }
  return total;
}

// The mass of a range; its values above `floor` (and perhaps some more) are listed.
inline uint64_t weigh_range(const Source& s, const Range& range, float top, float floor, float* buffer, List* list) {
  const F t = V::broadcast(top), least = V::broadcast(bound_below(floor, s.temperature));
  uint64_t total = 0;
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    for (int64_t piece = 0; piece < n; piece += Masses::kMost) {
      Masses masses;
      const int64_t end = smaller(piece + Masses::kMost, n);
      for (int64_t i = piece; i < end; i += kLanes) {
        const F v = load_values(x + i, n - i), y = tempered<V>(v, s.temperature);
        masses.add(vec::exp_below<V>(V::sub(y, t)));
        const uint32_t bits = V::mask_bits(V::gt(v, least));
        if (bits) add_lanes(y, bits, start + i, list);
      }
      total += masses.total();
    }
  });
  return total;
}

// A guess at a value below which tokens have less than half of the mass that top-p leaves out: from a sample of the logits.
// Right or wrong, it changes no result; a good one makes the list of candidates short. At least kRare sampled tokens lie above:
// of rarer ones the sample says nothing.
inline float guess_floor(const Source& s, float top, float p) {
  constexpr int64_t kSample = 8192;
  constexpr int kSteps = 64, kRare = 8;  // steps of half a unit
  const int64_t vectors = s.a.vocab / kLanes, stride = vectors * kLanes / kSample + 1;
  float mass[kSteps] = {}, total = 1.0f;
  int32_t count[kSteps] = {};
  for (int64_t at = 0; at < vectors; at += stride) {
    const F y = tempered<V>(cleaned<V>(V::load(s.logits() + at * kLanes)), s.temperature);
    const F below = V::min(V::max(V::sub(V::broadcast(top), y), V::zero()), V::broadcast(0.5f * (kSteps - 1)));
    const I step = V::cut_i32(V::add(below, below));
    const F e = vec::exp_below<V>(V::neg(below));
    int32_t steps[kLanes];
    float es[kLanes];
    std::memcpy(steps, &step, sizeof steps);
    V::store(es, e);
    for (int i = 0; i < kLanes; ++i) {
      mass[steps[i]] += es[i];
      ++count[steps[i]];
    }
  }
  for (const float m : mass) total += m * static_cast<float>(stride);
  int nearest = 0, step = kSteps - 1;
  for (int seen = 0; nearest < kSteps - 1 && (seen += count[nearest]) < kRare; ++nearest) {
  }
  float left = 0.5f * (1.0f - (p > 0.0f ? p : 0.0f)) * total;
  for (; step > nearest && mass[step] * static_cast<float>(stride) <= left; --step) left -= mass[step] * static_cast<float>(stride);
  return step == kSteps - 1 ? -kInf : bounded(top - 0.5f * static_cast<float>(step + 1));
}

// A value below which all tokens together have no more mass than `left`, whatever their values are.
inline float sure_floor(const SampleArgs& a, float top, uint64_t left) {
  const float each = 0x1p-41f * static_cast<float>(left) / static_cast<float>(a.vocab);  // half of a fair share, for rounding
  return bounded(top + vec::log<vec::F32x1>(each));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
