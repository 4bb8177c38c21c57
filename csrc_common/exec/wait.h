// What a thread of the team needs of the machine: a pause, sleep until a word changes, and the mode of denormals.
#pragma once
#include <atomic>
#include <climits>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sets flush-to-zero for its scope, whatever modes the caller computes in.
class FlushDenormals {
 public:
  FlushDenormals() {
#if defined(__x86_64__)
    saved_ = _mm_getcsr();
    _mm_setcsr(0x1F80u | 0x8040u);  // round to nearest, no error traps; FTZ, DAZ
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(1ull << 24));  // FZ alone
#endif
  }
  ~FlushDenormals() {
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(saved_));
#endif
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__aarch64__)
  uint64_t saved_ = 0;
#else
  uint32_t saved_ = 0;
#endif
};

#if defined(__linux__)

inline void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
inline void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else  // one bed for all words: who is woken looks at its own

struct Bed {
  std::mutex lock;
  std::condition_variable alarm;
};
inline Bed& bed() {
  static Bed shared;
  return shared;
}

inline void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  std::unique_lock<std::mutex> held(bed().lock);
  if (word->load(std::memory_order_acquire) == expected) bed().alarm.wait(held);
}
inline void futex_wake_all(std::atomic<uint32_t>*) {
  std::lock_guard<std::mutex> held(bed().lock);  // not between another's look at its word and its sleep
  bed().alarm.notify_all();
}

#endif

}  // namespace octavo
