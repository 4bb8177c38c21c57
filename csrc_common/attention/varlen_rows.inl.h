// Keys and values of varlen_attention, from rows of float32 activations: as they are (RowsKV), or as the bfloat16 tiles that a
// page of such keys and values holds (TilesKV). What follows the sequence reads as +0.
#pragma once
#include "attention/pairs.inl.h"
#include "attention/scratch.inl.h"
#include "attention/turn_rows.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using V = vec::Native;

// Where a sequence's rows of one kv head lie, and a block of keys turned.
class SequenceRows {
 public:
  void begin(const float* k, int64_t ldk, const float* v, int64_t ldv, int64_t length) {
    k_ = k;
    ldk_ = ldk;
    v_ = v;
    ldv_ = ldv;
    length_ = length;
  }

 protected:
  explicit SequenceRows(int64_t dim) : dim_(dim) {}

  int64_t valid(int64_t block) const { return smaller(kBlock, length_ - block * kBlock); }

  // to[dim][32 tokens].
  void turn_keys(int64_t block, float* to) const {
    const float* rows = k_ + block * kBlock * ldk_;
    const int64_t count = valid(block);
    int64_t t = 0;
    for (; t + 8 <= count; t += 8) turn_rows(rows + t * ldk_, ldk_, dim_, to + t, kBlock);
    for (; t < kBlock; ++t)
      for (int64_t d = 0; d < dim_; ++d) to[d * kBlock + t] = t < count ? rows[t * ldk_ + d] : 0.0f;
  }

  const float *k_ = nullptr, *v_ = nullptr;
  int64_t ldk_ = 0, ldv_ = 0, length_ = 0;
  const int64_t dim_;
};

// Keys are turned into pair rows block by block in scratch; values are read in place, but for the last block of a sequence.
class RowsKV : public SequenceRows {
 public:
  static constexpr bool kRoundsWeights = false;
  static constexpr bool kIsScaled = false;

  static int64_t scratch_bytes(int64_t dim) { return 2 * kBlock * dim * static_cast<int64_t>(sizeof(float)); }
  RowsKV(Scratch& scratch, int64_t dim)
      : SequenceRows(dim), packed_(scratch.take<float>(kBlock * dim)), tail_(scratch.take<float>(kBlock * dim)) {}

  Planes keys(int64_t block, const void*) const {
    turn_keys(block, packed_);
    return {packed_, packed_ + kBlock, 2 * kBlock};
  }
  static Planes from_pair(const Planes& keys, int64_t pair) {
    return {keys.even + pair * keys.stride, keys.odd + pair * keys.stride, keys.stride};
  }
  Planes values(int64_t block, const void*) const {
    const float* rows = v_ + block * kBlock * ldv_;
    const int64_t count = valid(block);
    if (count == kBlock) return {rows, rows + ldv_, 2 * ldv_};
    std::memset(tail_, 0, static_cast<size_t>(kBlock * dim_) * sizeof(float));
    for (int64_t t = 0; t < count; ++t) std::memcpy(tail_ + t * dim_, rows + t * ldv_, static_cast<size_t>(dim_) * sizeof(float));
    return {tail_, tail_ + dim_, 2 * dim_};
  }
  int64_t tile_bytes() const { return 0; }
  const float* k_scales(int64_t) const { return nullptr; }
  const float* v_scales(int64_t) const { return nullptr; }

 private:
  float* packed_;
  float* tail_;
};

// Tiles are made when they are first asked for, and stay for the unit's other query tiles where a segment of them fits.
class TilesKV : public SequenceRows {
 public:
  using Element = BF16;
  static constexpr bool kRoundsWeights = true;
  static constexpr bool kIsScaled = false;
  static constexpr int64_t kMaxDim = 256;  // of heads for which a segment is kept

  static int64_t scratch_bytes(int64_t dim) { return kBlock * dim * (4 + 4 * slots(dim)); }
  explicit TilesKV(int64_t dim) : SequenceRows(dim) {}
  TilesKV(Scratch& scratch, int64_t dim) : TilesKV(dim) { take(scratch); }
  void take(Scratch& scratch) {
    turned_ = scratch.take<float>(kBlock * dim_);
    keys_ = scratch.take<BF16>(slots(dim_) * kBlock * dim_);
    values_ = scratch.take<BF16>(slots(dim_) * kBlock * dim_);
  }

  void begin(const float* k, int64_t ldk, const float* v, int64_t ldv, int64_t length) {
    SequenceRows::begin(k, ldk, v, ldv, length);
    for (auto& place : places_) place = Place{};
  }

  const BF16* key_tile(int64_t block) {
    BF16* tile = keys_ + block % slots(dim_) * kBlock * dim_;
    Place& place = places_[block % slots(dim_)];
    if (place.key != block) pack_keys(place.key = block, tile);
    return tile;
  }
  Packed<BF16> keys(int64_t block, const void*) { return {key_tile(block), 2 * kBlock, nullptr}; }
  static Packed<BF16> from_pair(const Packed<BF16>& keys, int64_t pair) { return {keys.at + pair * keys.stride, keys.stride, nullptr}; }
  Packed<BF16> values(int64_t block, const void*) {
    BF16* tile = values_ + block % slots(dim_) * kBlock * dim_;
    Place& place = places_[block % slots(dim_)];
    if (place.value != block) pack_values(place.value = block, tile);
    return {tile, 2 * dim_, nullptr};
  }
  int64_t tile_bytes() const { return 0; }
  const float* k_scales(int64_t) const { return nullptr; }
  const float* v_scales(int64_t) const { return nullptr; }

 private:
  static constexpr int64_t kSlots = kSegment / kBlock;
  struct Place {  // blocks that lie there
    int64_t key = -1, value = -1;
  };

  static int64_t slots(int64_t dim) { return dim <= kMaxDim ? kSlots : 1; }

  // to[0], to[1] of every lane: low and high, rounded.
  template <class W>
  static void store_pairs(BF16* to, typename W::F low, typename W::F high) {
    const auto first = W::template shr<16>(W::bits(round_bf16<W>(low)));
    const auto second = W::iand(W::bits(round_bf16<W>(high)), W::ibroadcast(static_cast<int32_t>(0xFFFF0000u)));
    const auto pairs = W::ior(first, second);
    std::memcpy(static_cast<void*>(to), &pairs, sizeof pairs);
  }

  // [dim / 2][32 tokens][2]
  void pack_keys(int64_t block, BF16* to) const {
    turn_keys(block, turned_);
    for (int64_t d = 0; d < dim_; d += 2, to += 2 * kBlock)
      for (int64_t t = 0; t < kBlock; t += V::kLanes)
        store_pairs<V>(to + 2 * t, V::load(turned_ + d * kBlock + t), V::load(turned_ + (d + 1) * kBlock + t));
  }

  // [16 pairs of tokens][dim][2]
  void pack_values(int64_t block, BF16* to) const {
    const float* rows = v_ + block * kBlock * ldv_;
    const int64_t count = valid(block);
    for (int64_t t = 0; t < kBlock; t += 2, to += 2 * dim_) {
      if (t >= count) {
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(2 * dim_) * sizeof(BF16));
        continue;
      }
      const float *low = rows + t * ldv_, *high = low + ldv_;
      const bool has_two = t + 1 < count;
      int64_t d = 0;
      for (; d + V::kLanes <= dim_; d += V::kLanes) store_pairs<V>(to + 2 * d, V::load(low + d), has_two ? V::load(high + d) : V::zero());
      for (; d < dim_; ++d) store_pairs<vec::F32x1>(to + 2 * d, low[d], has_two ? high[d] : 0.0f);
    }
  }

  float* turned_ = nullptr;
  BF16* keys_ = nullptr;
  BF16* values_ = nullptr;
  Place places_[kSlots];
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
