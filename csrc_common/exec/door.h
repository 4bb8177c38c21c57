// Who is inside a run: threads come in while it is open; closing waits until the last one has left.
#pragma once
#include "exec/interleave.h"
#include "exec/wait.h"

namespace octavo {

class Door {
 public:
  // What the opener wrote before is seen by whoever enters.
  void open() { inside_.store(0, std::memory_order_release); }

  bool enter() {
    OCTAVO_INTERLEAVE();
    uint32_t inside = inside_.load(std::memory_order_relaxed);
    while (!(inside & kClosed))
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    return false;
  }

  void leave() {
    if (inside_.fetch_sub(1, std::memory_order_acq_rel) - 1 == (kClosed | kAwaited)) futex_wake_all(&inside_);
  }

  // Lets nobody in any more and waits for those inside, `spin` pauses awake, then asleep.
  void close(int spin) {
    uint32_t inside = inside_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
    for (int i = 0; i < spin && inside != kClosed; ++i) {
      cpu_pause();
      inside = inside_.load(std::memory_order_acquire);
    }
    if (inside == kClosed) return;
    OCTAVO_INTERLEAVE();
    inside = inside_.fetch_or(kAwaited, std::memory_order_acq_rel) | kAwaited;
    while (inside != (kClosed | kAwaited)) {
      futex_wait(&inside_, inside);
      inside = inside_.load(std::memory_order_acquire);
    }
  }

 private:
  static constexpr uint32_t kClosed = 1u << 31, kAwaited = 1u << 30;
  std::atomic<uint32_t> inside_{kClosed};  // threads, and the two bits
};

}  // namespace octavo
