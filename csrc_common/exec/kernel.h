// The one kernel signature, and how a kernel's arguments are described to the builder.
//
// A kernel is called by every thread of the team with the same arguments; it splits its own work through `Lane` and may
// not allocate, start threads or keep state. Arguments are a POD struct (csrc_common/contract/<op>.h) whose fields are
// named in a table beside it, so that one generic binding can fill any of them from Python.
#pragma once
#include <cstddef>
#include <cstdint>

#include "exec/step.h"

#if !defined(OCTAVO_GPU)
#include <atomic>

#include "exec/interleave.h"
#endif

namespace octavo {

#if defined(OCTAVO_GPU)
using Counter = int32_t;
#else
using Counter = std::atomic<int32_t>;

// The op that a team works on, in one word: its number (31 bits, wraps), a bit that says that somebody sleeps until the next
// op, and how many of its chunks were given out (32 bits): to threads of the first half of the team (low 16 bits) and of the second.
//
// The first half takes chunks from the front, the second from the back, until they meet. So a thread takes neighbours, and in
// the next op the same share again: what it wrote is in its own caches, which may be far from those of the other half.
namespace work {
constexpr uint64_t kSleepers = uint64_t{1} << 63;
constexpr int64_t kMostChunks = 1 << 15;  // half of what 16 bits count: threads that come too late count too
constexpr uint32_t kFront = 1, kBack = 1 << 16;
[[gnu::always_inline]] inline uint32_t op_of(uint64_t word) { return static_cast<uint32_t>(word >> 32) & 0x7FFFFFFFu; }
[[gnu::always_inline]] inline int64_t front_of(uint64_t word) { return static_cast<int64_t>(word & 0xFFFFu); }
[[gnu::always_inline]] inline int64_t back_of(uint64_t word) { return static_cast<int64_t>(word >> 16 & 0xFFFFu); }
[[gnu::always_inline]] inline int64_t given_of(uint64_t word) { return front_of(word) + back_of(word); }
}  // namespace work

// What one thread knows of the op it is in. Only that thread touches it.
struct Share {
  std::atomic<uint64_t>* word;
  uint32_t side = work::kFront;
  uint32_t op = 0;
  uint32_t held_op = 0;
  int64_t held = -1;     // what of op `held_op` was given out before a chunk that this thread has not begun
  int64_t chunks = 0;    // of the op; 0 until the kernel has asked
  int64_t num_done = 0;  // chunks that this thread took

  // Whether this thread opened the op: exactly one does, and it has the first chunk.
  bool is_opener() const { return held == 0 && held_op == op; }
  bool is_front() const { return side == work::kFront; }

  void enter(uint32_t number) {
    op = number;
    chunks = num_done = 0;
    if (held_op != op) held = -1;
  }

  // The next chunk, from this thread's end or in their order, or -1 when none is left. Inline by force: a copy of it in one level's
  // object could otherwise serve all others.
  [[gnu::always_inline]] int64_t take(bool is_in_order) {
    int64_t given = held;
    held = -1;
    if (given < 0) {
      if (num_done == chunks) return -1;
      const uint64_t seen = word->load(std::memory_order_relaxed);
      if (work::op_of(seen) != op || work::given_of(seen) >= chunks) return -1;
      OCTAVO_INTERLEAVE();
      const uint64_t old = word->fetch_add(side, std::memory_order_relaxed);
      given = static_cast<int64_t>(old & 0xFFFFFFFFu);
      if (work::op_of(old) != op) {  // came too late, and took a chunk of a later op instead: done when this thread gets there
        held_op = work::op_of(old);
        held = given;
        return -1;
      }
    }
    const int64_t before = work::given_of(given);
    if (before >= chunks) return -1;
    ++num_done;
    return is_in_order ? before : is_front() ? work::front_of(given) : chunks - 1 - work::back_of(given);
  }
};

// A thread's place in the team, and its share of the current op. Which thread computes a chunk never shows in the result: every
// output element is computed whole by one thread, in a fixed order. A kernel may run although no chunk is left for it, even
// when the team is several ops further on: before its first claim it reads its arguments and the step, nothing else, and it
// claims until there is no more.
struct Lane {
  int32_t thread;
  int32_t num_threads;
  Share* share;
  void* scratch;           // this thread's own, kScratchBytes, 64-byte aligned
  int64_t scratch_bytes;

  // Claims the next `chunk` of `total` units: fills [begin, end) and returns true, or false when none is left. All threads
  // ask with the same numbers. Threads of the first half of the team get ascending chunks, the others descending ones.
  [[gnu::always_inline]] bool claim(int64_t total, int64_t chunk, int64_t* begin, int64_t* end) const {
    return claim_next(false, total, chunk, begin, end);
  }
  // The same, ascending for all: where units that come first take longer.
  [[gnu::always_inline]] bool claim_in_order(int64_t total, int64_t chunk, int64_t* begin, int64_t* end) const {
    return claim_next(true, total, chunk, begin, end);
  }
  [[gnu::always_inline]] bool claim_next(bool is_in_order, int64_t total, int64_t chunk, int64_t* begin, int64_t* end) const {
    if (num_threads == 1 && chunk < total) chunk = total;  // nobody to share with: one claim
    if (total / work::kMostChunks >= chunk) chunk = total / work::kMostChunks + 1;
    if (share->chunks == 0) share->chunks = total > chunk ? (total + chunk - 1) / chunk : 1;
    const int64_t at = share->take(is_in_order);
    if (at < 0 || total <= 0) return false;
    *begin = at * chunk;
    *end = total - *begin < chunk ? total : *begin + chunk;
    return true;
  }

  // How many of `total` units of `values` float32 each to claim at once. A claim moves a cache line between cores, up to half a
  // microsecond where they are far apart, so it should be worth several; a thread still finds two claims where it can.
  [[gnu::always_inline]] int64_t worthwhile(int64_t total, int64_t values) const {
    const int64_t worth = 16384 / (values < 1 ? 1 : values) + 1, fair = (total + 2 * num_threads - 1) / (2 * num_threads);
    return fair < 1 ? 1 : worth < fair ? worth : fair;
  }
};

using Kernel = void (*)(const void* args, const Step& step, const Lane& lane);

#endif

// `kernel`: another kernel, which this one calls for parts of its work (const KernelRow*; given by name).
enum class FieldKind : uint8_t { pointer, i64, i32, f32, rows, kernel };

struct Field {
  const char* name;
  uint32_t offset;
  FieldKind kind;
  bool is_optional = false;  // 0 where it is not given
};

#if !defined(OCTAVO_GPU)
// One row of kernels.inc.
struct KernelRow {
  const char* op;        // the op with its types, e.g. linear_q4g32
  const char* name;      // op__level: function, file stem, test id, bench id
  const char* level;     // avx2, avx512, ...
  uint64_t required;     // feature bits
  Kernel run;
  const Field* fields;
  uint32_t num_fields;
  uint32_t args_bytes;
};
#endif

#define OCTAVO_FIELD(Args, member, kind_) \
  ::octavo::Field { #member, static_cast<uint32_t>(__builtin_offsetof(Args, member)), ::octavo::FieldKind::kind_ }
#define OCTAVO_OPTIONAL(Args, member, kind_) \
  ::octavo::Field { #member, static_cast<uint32_t>(__builtin_offsetof(Args, member)), ::octavo::FieldKind::kind_, true }

constexpr int64_t kScratchBytes = 1 << 20;
constexpr int64_t kMaxArgsBytes = 384;

}  // namespace octavo
