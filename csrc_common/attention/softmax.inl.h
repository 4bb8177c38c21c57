// One row's scores of a segment to weights: maximum, exponentials, their sum, rounding. Arithmetic: docs/numerics.md, "Attention".
#pragma once
#include "attention/rows.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// n vectors that take each step together. An exponential is one long chain of dependent steps: four side by side keep the
// units busy where the processor's window over the instructions is too small to find the next vector by itself.
template <class V, int n>
struct Several {
  static constexpr int kLanes = n * V::kLanes;
  struct F {
    typename V::F part[n];
  };
  struct I {
    typename V::I part[n];
  };
  struct M {
    typename V::M part[n];
  };

  template <class R, class Op>
  static R each(Op op) {
    R r;
    for (int i = 0; i < n; ++i) r.part[i] = op(i);
    return r;
  }
  static F zero() { return broadcast(0.0f); }
  static F broadcast(float x) {
    return each<F>([&](int) { return V::broadcast(x); });
  }
  static I ibroadcast(int32_t x) {
    return each<I>([&](int) { return V::ibroadcast(x); });
  }
  static F load(const float* p) {
    return each<F>([&](int i) { return V::load(p + i * V::kLanes); });
  }
  static void store(float* p, const F& x) {
    for (int i = 0; i < n; ++i) V::store(p + i * V::kLanes, x.part[i]);
  }
  static F sub(const F& a, const F& b) {
    return each<F>([&](int i) { return V::sub(a.part[i], b.part[i]); });
  }
  static F mul(const F& a, const F& b) {
    return each<F>([&](int i) { return V::mul(a.part[i], b.part[i]); });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return each<F>([&](int i) { return V::fma(a.part[i], b.part[i], c.part[i]); });
  }
  static I bits(const F& x) {
    return each<I>([&](int i) { return V::bits(x.part[i]); });
  }
  static F from_bits(const I& x) {
    return each<F>([&](int i) { return V::from_bits(x.part[i]); });
  }
  static I iadd(const I& a, const I& b) {
    return each<I>([&](int i) { return V::iadd(a.part[i], b.part[i]); });
  }
  static I iand(const I& a, const I& b) {
    return each<I>([&](int i) { return V::iand(a.part[i], b.part[i]); });
  }
  template <int count>
  static I shl(const I& x) {
    return each<I>([&](int i) { return V::template shl<count>(x.part[i]); });
  }
  template <int count>
  static I shr(const I& x) {
    return each<I>([&](int i) { return V::template shr<count>(x.part[i]); });
  }
  static M lt(const F& a, const F& b) {
    return each<M>([&](int i) { return V::lt(a.part[i], b.part[i]); });
  }
  static M eq(const F& a, const F& b) {
    return each<M>([&](int i) { return V::eq(a.part[i], b.part[i]); });
  }
  static F select(const M& m, const F& a, const F& b) {
    return each<F>([&](int i) { return V::select(m.part[i], a.part[i], b.part[i]); });
  }
};

// float32 rounded to bf16 (scalar.h bf16_of), kept as float32. A weight is neither denormal (results are flushed) nor a NaN
// whose payload could overflow.
template <class V, bool is_weight = false>
inline typename V::F round_bf16(typename V::F x) {
  const auto u = V::bits(x);
  const auto odd = V::iand(V::template shr<16>(u), V::ibroadcast(1));
  const auto up = V::iadd(u, V::iadd(odd, V::ibroadcast(0x7FFF)));
  const auto rounded = V::from_bits(V::iand(up, V::ibroadcast(static_cast<int32_t>(0xFFFF0000u))));
  if constexpr (is_weight) {
    return rounded;
  } else {
    const auto zero = V::from_bits(V::iand(u, V::ibroadcast(INT32_MIN)));
    const auto y = V::select(V::lt(V::abs(x), V::broadcast(0x1p-126f)), zero, rounded);
    return V::select(V::eq(x, x), y, x);
  }
}

// A query as it is multiplied.
template <class V, bool rounds>
inline void load_query(const float* x, float* q, int64_t dim) {
  if constexpr (rounds) {
    int64_t d = 0;
    for (; d + V::kLanes <= dim; d += V::kLanes) V::store(q + d, round_bf16<V>(V::load(x + d)));
    for (; d < dim; ++d) q[d] = round_bf16<vec::F32x1>(x[d]);
  } else {
    std::memcpy(q, x, static_cast<size_t>(dim) * sizeof(float));
  }
}

alignas(64) inline constexpr float kCount[kBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Asks for one tile, a part of it per call.
struct Asking {
  const char* at;
  int64_t left, part;  // bytes

  Asking(const void* tile, int64_t bytes, int64_t num_calls)
      : at(static_cast<const char*>(tile)), left(tile ? bytes : 0), part((bytes / num_calls + 63) / 64 * 64) {}
  void ask() {
    const int64_t end = left - part;
    for (; left > end && left > 0; left -= 64, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// What the row does not see of its first and its last block. Whole vectors: what is read next are whole lines, and a processor
// hands on what was just stored only where one store holds it all.
template <class V>
inline void fill_unseen(const Row& row, BlockRange range, float* scores, float value) {
  const int64_t before = row.low - range.first * kBlock, last = row.high - range.last * kBlock;
  const auto fill = [&](float* x, int64_t from, int64_t to) {
    const typename V::F low = V::broadcast(static_cast<float>(from)), high = V::broadcast(static_cast<float>(to));
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      const typename V::F at = V::load(kCount + i), seen = V::select(V::lt(at, low), V::broadcast(value), V::load(x + i));
      V::store(x + i, V::select(V::lt(high, at), V::broadcast(value), seen));
    }
  };
  if (before > 0) fill(scores + range.first * kBlock % kSegment, before, kBlock);
  if (last < kBlock - 1) fill(scores + range.last * kBlock % kSegment, 0, last);
}

// Nothing but a positive factor: it may come after the maximum, for rounding keeps order.
template <class KV>
inline bool is_plain(const ScoreRule& rule) {
  return !KV::kIsScaled && rule.scale > 0.0f && rule.softcap == 0.0f && !rule.has_alibi && rule.reach < 0;
}

// What the row adds to the scores of kLanes keys from `key` on.
template <class V>
inline typename V::F bias_of(const ScoreRule& rule, const Row& row, int64_t key) {
  const int64_t apart = key - row.position;
  if (apart >= -rule.reach && apart + V::kLanes - 1 <= rule.reach) return V::load(row.bias + apart);
  float lanes[V::kLanes];
  for (int64_t i = 0; i < V::kLanes; ++i) lanes[i] = row.bias[larger(-rule.reach, smaller(rule.reach, apart + i))];
  return V::load(lanes);
}

// Products to scores, in place.
template <class V, class KV>
__attribute__((flatten)) void finish_scores(const ScoreRule& rule, const KV& kv, const Row& row, BlockRange range, float* scores) {
  using F = typename V::F;
  const F scale = V::broadcast(rule.scale), cap = V::broadcast(rule.softcap), slope = V::broadcast(row.alibi);
  for (int64_t block = range.first; block <= range.last; ++block) {
    const int64_t start = block * kBlock;
    float* s = scores + start % kSegment;
    for (int64_t i = 0; i < kBlock; i += V::kLanes) {
      F x = V::load(s + i);
      if constexpr (KV::kIsScaled) x = V::mul(x, V::load(kv.k_scales(block) + i));
      x = V::mul(x, scale);
      if (rule.softcap != 0.0f) x = V::mul(cap, vec::tanh<V>(V::div(x, cap)));
      if (rule.has_alibi) {
        F distance = V::add(V::load(kCount + i), V::broadcast(static_cast<float>(start - row.position)));
        if (rule.is_two_sided) distance = V::neg(V::abs(distance));
        x = V::add(x, V::mul(slope, distance));
      }
      if (rule.reach >= 0) x = V::add(x, bias_of<V>(rule, row, start + i));
      V::store(s + i, x);
    }
  }
}

template <class V>
inline float largest(const float* x, int64_t count) {
  typename V::F best = V::broadcast(-__builtin_inff()), other = best;
  for (int64_t i = 0; i < count; i += 2 * V::kLanes) {  // whole blocks
    best = V::max(best, V::load(x + i));
    other = V::max(other, V::load(x + i + V::kLanes));
  }
  float lanes[V::kLanes];
  V::store(lanes, V::max_of_fours(V::max(best, other)));
  float m = lanes[0];
  for (int i = 4; i < V::kLanes; i += 4) m = m > lanes[i] ? m : lanes[i];
  return m;
}

// Where weights go: in place, as float32.
struct WeightsInPlace {
  static void clear_unseen(const Row& row, BlockRange range, float* scores) { fill_unseen<vec::Native>(row, range, scores, 0.0f); }
  template <class W, class KV>
  static void store(float* row, int64_t at, typename W::F e) {
    if constexpr (KV::kRoundsWeights) e = round_bf16<W, true>(e);
    W::store(row + at % kSegment, e);
  }
};

// kLanes of W positions from `at` on: exponentials added to the sum by position mod 16, weights stored.
template <class V, class W, class KV, class Weights>
inline void weigh_some(const KV& kv, int64_t at, typename W::F scale, typename W::F m, float* row, vec::Lanes16<V>& sum) {
  const float* s = row + at % kSegment;
  const auto x = W::sub(W::mul(W::load(s), scale), m);
  auto e = W::select(W::eq(x, x), vec::exp_below<W>(x), x);  // a NaN stays one
  for (int i = 0; i < W::kLanes / V::kLanes; ++i) {
    auto& lane = sum.part[i % (16 / V::kLanes)];
    lane = V::add(lane, e.part[i]);
  }
  if constexpr (KV::kIsScaled) e = W::mul(e, W::load(kv.v_scales(at / kBlock) + at % kBlock));
  Weights::template store<W, KV>(row, at, e);
}

// Products to weights; the row's segment_max and segment_sum.
template <class V, class KV, class Weights = WeightsInPlace>
__attribute__((flatten)) void to_weights(const ScoreRule& rule, const KV& kv, Row& row, BlockRange range, float* scores, Asking asking) {
  constexpr int kSide = V::kLanes == 1 ? 16 : 4;
  using Wide = Several<V, kSide>;
  using Rest = Several<V, kBlock % Wide::kLanes ? kBlock / V::kLanes : kSide>;
  const bool is_unscaled = is_plain<KV>(rule);
  if (!is_unscaled) finish_scores<V>(rule, kv, row, range, scores);
  fill_unseen<V>(row, range, scores, -__builtin_inff());
  const int64_t begin = range.first * kBlock, end = (range.last + 1) * kBlock;
  const float factor = is_unscaled ? rule.scale : 1.0f;
  row.segment_max = largest<V>(scores + begin % kSegment, end - begin) * factor;
  vec::Lanes16<V> sum;
  int64_t at = begin;
  if constexpr (!KV::kIsScaled || Wide::kLanes <= kBlock) {
    const auto scale = Wide::broadcast(factor), m = Wide::broadcast(row.segment_max);
    for (; at + Wide::kLanes <= end; at += Wide::kLanes) {
      asking.ask();
      weigh_some<V, Wide, KV, Weights>(kv, at, scale, m, scores, sum);
    }
  }
  const auto scale = Rest::broadcast(factor), m = Rest::broadcast(row.segment_max);
  for (; at < end; at += Rest::kLanes) {
    asking.ask();
    weigh_some<V, Rest, KV, Weights>(kv, at, scale, m, scores, sum);
  }
  Weights::clear_unseen(row, range, scores);
  row.segment_sum = sum.fold();
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
