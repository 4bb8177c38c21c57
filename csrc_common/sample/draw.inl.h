// Step 5: the greatest tempered value + Gumbel noise, the lowest id of equals.
//
// Noise g of a draw w is at least t only if 1 - u = (~w + 1/2) / 2^32 <= exp(-t), since 1 - exp(-z) <= z. So the draws of
// many tokens are made at once, four per Philox block, and held against exp(value - best sum so far), a little enlarged; the
// few tokens that pass, a hundred or so of a whole vocabulary, get their noise in the contract's arithmetic. Tokens so far
// below the best sum that no noise lifts them to it are not even drawn for.
#pragma once
#include <cstring>

#include "sample/list.inl.h"
#include "sample/noise.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct Draw {
  NoiseKey key;
  Best best;  // by sum

  // Token `id`, in any order of ids.
  void offer(float y, uint32_t word, int64_t id) {
    if (!(y > -kInf) || !hopeful<vec::F32x1>(y, static_cast<int32_t>(word))) return;
    const float sum = y + gumbel(word);
    if (sum > best.value || (sum == best.value && id < best.id)) best = {sum, static_cast<int32_t>(id)};
  }
  // Whether no noise can lift any of these values to the best sum.
  bool is_out_of_reach(F y) const {
    const F most = V::add(y, V::broadcast(kMaxGumbel));
    return V::mask_bits(V::lt(most, V::broadcast(best.value))) == kAllLanes;
  }
  // Lanes whose draw may lift y to the best sum.
  template <class W>
  uint32_t hopeful(typename W::F y, typename W::I word) const {
    constexpr float kSlack = 0.01f, kRounding = 0x1p-21f;
    const float slack = kSlack + kRounding * vec::F32x1::abs(best.value);
    const typename W::F gap = W::add(W::sub(y, W::broadcast(best.value)), W::broadcast(slack));
    const typename W::F most = W::mul(above_exp<W>(W::min(gap, W::zero())), W::broadcast(0x1p+31f));
    const typename W::F rest = W::cvt_f32(W::template shr<1>(W::ixor(word, W::ibroadcast(-1))));
    return ~W::mask_bits(W::gt(rest, most)) & ((1u << W::kLanes) - 1u);
  }
  // At least exp(x) of x <= 0, and at most a tenth more: between powers of two 2^t is below the line that its bits make.
  template <class W>
  static typename W::F above_exp(typename W::F x) {
    constexpr float kOne = 0x1.0p+23f;
    const typename W::F bits = W::fma(x, W::broadcast(0x1.715476p+0f * kOne), W::broadcast(127.0f * kOne));
    return W::from_bits(W::cut_i32(W::max(bits, W::broadcast(kOne))));
  }
};

inline Draw draw_of(const SampleArgs& a, int64_t r) { return {{a.seed[r], a.choice[r], a.position[r]}, {}}; }

// The Philox block that each lane takes of the kLanes blocks of 4 * kLanes tokens in four vectors of values: one of those whose
// tokens lie, in one of the vectors, in the lane's own four lanes. So the maximum over these bounds what the lane's draws win.
struct BlockOfLane {
  int32_t lane[kLanes];
  constexpr BlockOfLane() : lane() {
    for (int i = 0; i < kLanes; ++i) lane[i] = kLanes < 4 ? 0 : i % 4 * (kLanes / 4) + i / 4;
  }
};

// Draws among all tokens of the range.
inline void draw_range(const Source& s, const Range& range, float* buffer, Draw* draw) {
  static constexpr BlockOfLane kBlocks;
  const I blocks = V::iload(kBlocks.lane);
  each_segment(s, range, buffer, [&](const float* x, int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; i += kGroup) {
      const F y = tempered<V>(V::max_of_fours(greatest_of(x + i, n - i)), s.temperature);
      if (draw->is_out_of_reach(y)) continue;
      I words[4];
      noise_draws<V>(draw->key, V::iadd(blocks, V::ibroadcast(static_cast<int32_t>((start + i) / 4))), words);
      uint32_t lanes = draw->hopeful<V>(y, V::umax(V::umax(words[0], words[1]), V::umax(words[2], words[3])));
      if (!lanes) continue;
      uint32_t found[4][kLanes];
      std::memcpy(found, words, sizeof found);
      for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const int64_t first = i + 4 * kBlocks.lane[lane];
        for (int64_t j = first; j < first + 4 && j < n; ++j)
          draw->offer(tempered<vec::F32x1>(cleaned<vec::F32x1>(x[j]), s.temperature), found[j - first][lane], start + j);
      }
    }
  });
}

// Draws among the tokens of a list.
inline void draw_listed(const List& list, Draw* draw) {
  for (int64_t i = 0; i < list.n; i += kLanes) {
    const F y = load_values(list.y + i, list.n - i);
    if (draw->is_out_of_reach(y)) continue;
    const I id = V::iload(list.id + i);
    I words[4];
    noise_draws<V>(draw->key, V::template shr<2>(id), words);
    const F place = V::cvt_f32(V::iand(id, V::ibroadcast(3)));
    F word = V::from_bits(words[0]);
    for (int w = 1; w < 4; ++w) word = V::select(V::eq(place, V::broadcast(static_cast<float>(w))), V::from_bits(words[w]), word);
    uint32_t found[kLanes];
    std::memcpy(found, &word, sizeof found);
    for (uint32_t lanes = draw->hopeful<V>(y, V::bits(word)); lanes; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      if (i + lane < list.n) draw->offer(list.y[i + lane], found[lane], list.id[i + lane]);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
