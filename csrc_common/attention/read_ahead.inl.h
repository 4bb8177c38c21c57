// Which tile to ask memory for while another one is read. A unit reads, segment by segment, its key tiles, then its value tiles.
#pragma once
#include "attention/segment.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Stays at least kLeastAhead and at most kMostAhead tiles before the reader: memory takes longer to answer than one tile takes
// to be used, and it would rest while scores become weights.
template <class KV>
class ReadAhead {
 public:
  static constexpr int64_t kLeastAhead = 2, kMostAhead = 8;

  // Blocks [first, last] of the sequence.
  ReadAhead(const KV& kv, int64_t first, int64_t last) : kv_(kv), first_(first), last_(last), block_(first) {
    for (int64_t i = 0; i < kLeastAhead; ++i) step();
    ahead_ = kLeastAhead;
  }

  // After these blocks, from `first` on the keys of another unit, as many tiles as none of its own readings asks for.
  void then(const KV& other, int64_t first, int64_t last) {
    for (int64_t i = 0; i < kLeastAhead && first + i <= last; ++i) then_[num_then_++] = other.key_tile(first + i);
  }

  // The next tile to ask for, as one is read; null at the end.
  const void* in_step() {
    --ahead_;
    return take();
  }
  // One more, if that is not too far.
  const void* extra() { return ahead_ < kMostAhead ? take() : nullptr; }

 private:
  static constexpr int64_t kSegmentBlocks = kSegment / kBlock;

  const void* take() {
    if (block_ > last_) return at_then_ < num_then_ ? then_[at_then_++] : nullptr;
    ++ahead_;
    if (!are_values_) kv_.ask_for_scales(block_);
    const void* at = are_values_ ? kv_.value_tile(block_) : kv_.key_tile(block_);
    step();
    return at;
  }

  void step() {
    const int64_t segment = block_ / kSegmentBlocks;
    if (++block_ <= smaller(last_, (segment + 1) * kSegmentBlocks - 1)) return;
    if (!are_values_) block_ = larger(first_, segment * kSegmentBlocks);
    are_values_ = !are_values_;
  }

  const KV& kv_;
  const int64_t first_, last_;
  int64_t block_;
  bool are_values_ = false;
  int64_t ahead_ = 0;
  const void* then_[kLeastAhead];
  int64_t num_then_ = 0, at_then_ = 0;
};

// Where keys and values are not worth asking for.
struct NoAhead {
  const void* in_step() { return nullptr; }
  const void* extra() { return nullptr; }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
