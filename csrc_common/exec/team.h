// A persistent team of threads that walks a list of kernel calls with light barriers.
//
// Waiting spins for a moment, then sleeps on a futex: with more threads than processors (quotas, neighbours) spinning
// would burn the very time the late thread needs. The caller is thread 0. FTZ and DAZ are set in every team thread, and in
// the caller for the length of a run (docs/numerics.md, "Denormals"). A team runs one program at a time.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/kernel.h"

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

// Sets flush-to-zero for its scope.
class FlushDenormals {
 public:
  FlushDenormals() {
#if defined(__x86_64__)
    saved_ = _mm_getcsr();
    _mm_setcsr((saved_ & ~0x6000u) | 0x8040u);  // round to nearest, FTZ, DAZ
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"((saved_ & ~(3ull << 22)) | (1ull << 24)));
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

inline void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
inline void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

class Team {
 public:
  // `spin` counts pauses before sleeping; few when threads outnumber processors.
  // Throws std::runtime_error where the system gives no memory or no thread (a limit on processes, say).
  Team(int num_threads, int spin) : num_threads_(num_threads), spin_(spin) {
    if (num_threads < 1) throw std::invalid_argument("team: asked for " + std::to_string(num_threads) + " threads; 1 is the least");
    try {
      scratch_.resize(num_threads);
      for (auto& s : scratch_)
        if (!(s = std::aligned_alloc(4096, kScratchBytes))) throw std::bad_alloc();
      for (int t = 1; t < num_threads; ++t) threads_.emplace_back([this, t] { serve(t); });
    } catch (const std::exception& error) {
      const size_t num_started = threads_.size() + 1;
      end();
      throw std::runtime_error("team: only " + std::to_string(num_started) + " of " + std::to_string(num_threads) +
                               " threads could be started (" + error.what() + "); ask for fewer, or raise the limit");
    }
  }
  ~Team() { end(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs `body(lane)` on every thread; returns when all are done. Not reentrant: callers hold a lock of their own.
  template <class Body>
  void run(Body& body) {
    FlushDenormals flush;
    job_ = [](void* self, const Lane& lane) { (*static_cast<Body*>(self))(lane); };
    job_self_ = &body;
    next_.store(0, std::memory_order_relaxed);
    if (num_threads_ > 1) {
      start_.fetch_add(1, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(&start_);
    }
    job_(job_self_, lane(0));
    barrier();
  }

  // All threads meet here between two ops; the last one resets the work counter.
  void barrier() {
    if (num_threads_ == 1) {
      next_.store(0, std::memory_order_relaxed);
      return;
    }
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_seq_cst);
      if (barrier_sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(&phase_);
      return;
    }
    wait_change(&phase_, phase, &barrier_sleepers_, spin_);
  }

 private:
  void end() {
    stop_.store(true, std::memory_order_relaxed);
    start_.fetch_add(1, std::memory_order_release);
    futex_wake_all(&start_);
    for (auto& thread : threads_) thread.join();
    for (void* s : scratch_) std::free(s);
  }

  Lane lane(int thread) { return Lane{thread, num_threads_, &next_, scratch_[thread], kScratchBytes}; }

  static void wait_change(std::atomic<uint32_t>* word, uint32_t old, std::atomic<int32_t>* sleepers, int spin) {
    for (int i = 0; i < spin; ++i) {
      if (word->load(std::memory_order_acquire) != old) return;
      cpu_pause();
    }
    sleepers->fetch_add(1, std::memory_order_seq_cst);
    while (word->load(std::memory_order_seq_cst) == old) futex_wait(word, old);
    sleepers->fetch_sub(1, std::memory_order_relaxed);
  }

  void serve(int thread) {
    FlushDenormals flush;
    uint32_t seen = 0;
    for (;;) {
      wait_change(&start_, seen, &sleepers_, spin_);
      seen = seen + 1;
      if (stop_.load(std::memory_order_relaxed)) return;
      job_(job_self_, lane(thread));
      barrier();
    }
  }

  const int num_threads_;
  const int spin_;
  std::vector<void*> scratch_;
  void (*job_)(void*, const Lane&) = nullptr;
  void* job_self_ = nullptr;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> start_{0};
  std::atomic<int32_t> sleepers_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int32_t> arrived_{0};
  std::atomic<int32_t> barrier_sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace octavo
