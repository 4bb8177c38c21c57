// A persistent team of threads that walks a list of ops. No thread is waited for but those that hold work.
//
// An op is over when every chunk of it is done, whoever did it; the thread that did the last one opens the next op, keeps its
// first chunk and goes on. So a row of small ops costs one atomic exchange each, and a thread that the system does not run
// (late to wake, displaced by another process, more threads than processors) delays an op only by a chunk that it holds.
//
// Waiting spins for a moment, then sleeps on a futex. The caller is thread 0. FTZ and DAZ are set in every team thread, and in
// the caller for the length of a run (docs/numerics.md, "Denormals"). A team runs one program at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/door.h"
#include "exec/kernel.h"
#include "exec/place.h"
#include "exec/wait.h"

namespace octavo {

class Team {
 public:
  // `spin` counts pauses before sleeping; few when threads outnumber processors.
  // Throws std::runtime_error where the system gives no memory or no thread (a limit on processes, say).
  Team(int num_threads, int spin) : num_threads_(num_threads), spin_(spin) {
    if (num_threads < 1) throw std::invalid_argument("team: asked for " + std::to_string(num_threads) + " threads; 1 is the least");
    try {
      shares_.reset(new OwnShare[num_threads]);
      scratch_.resize(num_threads);
      for (auto& s : scratch_)
        if (!(s = std::aligned_alloc(4096, kScratchBytes))) throw std::bad_alloc();
      for (int t = 0; t < num_threads; ++t) {
        shares_[t].share.word = &word_;
        if (2 * t >= num_threads && t > 0) shares_[t].share.side = work::kBack;
      }
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

  // Lets thread t run on cpus[t] only. Thread 0 is the caller and stays where it is: its thread is not the team's to bind.
  // Returns 0 or the first errno; threads that the system refuses to bind go on as before.
  int place(const std::vector<std::vector<int>>& cpus) {
    if (cpus.size() != static_cast<size_t>(num_threads_))
      throw std::invalid_argument("team: " + std::to_string(cpus.size()) + " places for " + std::to_string(num_threads_) + " threads");
    int refused = 0;
    for (int t = 1; t < num_threads_; ++t) {
      const int found = bind_thread(threads_[t - 1], cpus[t]);
      refused = refused != 0 ? refused : found;
    }
    return refused;
  }

  // Calls op(i, lane) for i = 0 .. num_ops - 1, each by any number of threads; op i + 1 starts when all chunks of op i are
  // done. Returns when all are done and no thread is inside any more. Not reentrant: callers hold a lock of their own.
  template <class Op>
  void run(size_t num_ops, Op& op) {
    if (num_ops == 0) return;
    FlushDenormals flush;
    if (num_threads_ == 1) {
      for (size_t i = 0; i < num_ops; ++i) {
        Share share;
        share.word = &word_;
        share.held = 0;
        op(i, Lane{0, 1, &share, scratch_[0], kScratchBytes});
      }
      return;
    }
    call_ = [](void* self, size_t i, const Lane& lane) { (*static_cast<Op*>(self))(i, lane); };
    op_ = &op;
    num_ops_ = num_ops;
    first_ = next_op(work::op_of(word_.load(std::memory_order_relaxed)));
    door_.open();
    open(0, first_);
    walk(0);
    door_.close(spin_);  // whoever is inside still reads the program and the step
  }

 private:
  struct alignas(64) OwnShare {
    Share share;
  };

  static uint32_t next_op(uint32_t op) { return (op + 1) & 0x7FFFFFFFu; }

  // Makes `op` the current one; this thread has its first chunk.
  void open(int thread, uint32_t op) {
    Share& share = shares_[thread].share;
    share.held_op = op;
    share.held = 0;
    num_done_.store(0, std::memory_order_relaxed);
    OCTAVO_INTERLEAVE();
    const uint64_t old = word_.exchange(uint64_t{op} << 32 | share.side, std::memory_order_acq_rel);
    if (old & work::kSleepers) futex_wake_all(futex());
  }

  // Whether this thread did the last chunk of the op it was in.
  bool is_last(Share& share) {
    if (share.chunks == 0) return share.is_opener();  // a kernel that had nothing to claim
    if (share.num_done == 0) return false;
    if (share.num_done == share.chunks) return true;
    return num_done_.fetch_add(share.num_done, std::memory_order_acq_rel) + share.num_done == share.chunks;
  }

  // Takes part in the run until its ops are done; returns the number after the last.
  uint32_t walk(int thread) {
    Share& share = shares_[thread].share;
    const Lane lane{thread, num_threads_, &share, scratch_[thread], kScratchBytes};
    for (;;) {
      const uint32_t op = work::op_of(word_.load(std::memory_order_acquire));
      const size_t i = (op - first_) & 0x7FFFFFFFu;
      if (i >= num_ops_) return op;
      share.enter(op);
      call_(op_, i, lane);
      if (is_last(share))
        open(thread, next_op(op));
      else
        wait_for_another(op);
    }
  }

  // Until the current op is not `op`.
  void wait_for_another(uint32_t op) {
    for (int i = 0; i < spin_; ++i) {
      if (work::op_of(word_.load(std::memory_order_acquire)) != op) return;
      cpu_pause();
    }
    for (;;) {
      OCTAVO_INTERLEAVE();
      const uint64_t old = word_.fetch_or(work::kSleepers, std::memory_order_acq_rel);
      if (work::op_of(old) != op) return;
      OCTAVO_INTERLEAVE();
      futex_wait(futex(), static_cast<uint32_t>((old | work::kSleepers) >> 32));
    }
  }

  void serve(int thread) {
    FlushDenormals flush;
    uint32_t seen = 0;
    for (;;) {
      wait_for_another(seen);
      if (stop_.load(std::memory_order_relaxed)) return;
      seen = work::op_of(word_.load(std::memory_order_relaxed));
      if (!door_.enter()) continue;
      shares_[thread].share.held = -1;
      seen = walk(thread);
      door_.leave();
    }
  }

  void end() {
    stop_.store(true, std::memory_order_relaxed);
    if (!threads_.empty()) open(0, next_op(work::op_of(word_.load(std::memory_order_relaxed))));
    for (auto& thread : threads_) thread.join();
    for (void* s : scratch_) std::free(s);
  }

  // The half of the word that changes from op to op.
  std::atomic<uint32_t>* futex() {
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the op's number is taken for the upper four bytes of a word"
#endif
    return reinterpret_cast<std::atomic<uint32_t>*>(&word_) + 1;
  }

  const int num_threads_;
  const int spin_;
  std::unique_ptr<OwnShare[]> shares_;
  std::vector<void*> scratch_;
  void (*call_)(void*, size_t, const Lane&) = nullptr;
  void* op_ = nullptr;
  size_t num_ops_ = 0;
  uint32_t first_ = 0;  // number of the run's first op
  // One line: who finishes an op touches both.
  alignas(64) std::atomic<uint64_t> word_{0};
  std::atomic<int64_t> num_done_{0};
  alignas(64) Door door_;  // of the current run; closed between runs
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace octavo
