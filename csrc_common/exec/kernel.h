// The one kernel signature, and how a kernel's arguments are described to the builder.
//
// A kernel is called by every thread of the team with the same arguments; it splits its own work through `Lane` and may
// not allocate, start threads or keep state. Arguments are a POD struct (csrc_common/contract/<op>.h) whose fields are
// named in a table beside it, so that one generic binding can fill any of them from Python.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "exec/step.h"

namespace octavo {

// A thread's place in the team, and the shared counter from which chunks of the current op are claimed. Which thread
// computes a chunk never shows in the result: every output element is computed whole by one thread, in a fixed order.
struct Lane {
  int32_t thread;
  int32_t num_threads;
  std::atomic<int64_t>* next;
  void* scratch;           // this thread's own, kScratchBytes, 64-byte aligned
  int64_t scratch_bytes;

  // Claims the next `chunk` of `total` units: fills [begin, end) and returns true, or false when none is left.
  // Inline by force: a copy of it in one level's object could otherwise serve all others.
  [[gnu::always_inline]] bool claim(int64_t total, int64_t chunk, int64_t* begin, int64_t* end) const {
    if (num_threads == 1 && chunk < total) chunk = total;  // nobody to share with: one claim
    const int64_t at = next->fetch_add(chunk, std::memory_order_relaxed);
    if (at >= total) return false;
    *begin = at;
    *end = at + chunk < total ? at + chunk : total;
    return true;
  }
};

using Kernel = void (*)(const void* args, const Step& step, const Lane& lane);

enum class FieldKind : uint8_t { pointer, i64, i32, f32, rows };

struct Field {
  const char* name;
  uint32_t offset;
  FieldKind kind;
};

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

#define OCTAVO_FIELD(Args, member, kind_) \
  ::octavo::Field { #member, static_cast<uint32_t>(offsetof(Args, member)), ::octavo::FieldKind::kind_ }

constexpr int64_t kScratchBytes = 1 << 20;
constexpr int64_t kMaxArgsBytes = 384;

}  // namespace octavo
