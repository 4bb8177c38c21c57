// The thread team and the recorded program under load: many runs, one to sixteen threads, chunks claimed from the shared word.
//
// Built on its own (ci/test sanitize, with TSan; tests/native/test_team.py, without). Prints one line, ends non-zero at the first
// wrong result. What a race would show: a chunk done twice or never, an op that starts before its predecessor is done, a
// run that returns early, a lost wake-up (the run hangs; the caller has a time limit). Threads stop now and then at the places
// where another one coming in between matters.
#include <sched.h>
#include <time.h>

#include <cstdint>

namespace {
// Mostly nothing, at times gives the processor away, seldom sleeps.
void interleave() {
  thread_local uint32_t state = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&state) >> 4) | 1;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  if (state % 256 == 0) {
    const timespec some{0, 20'000};
    nanosleep(&some, nullptr);
  } else if (state % 8 == 0) {
    sched_yield();
  }
}
}  // namespace
#define OCTAVO_INTERLEAVE() interleave()

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "exec/program.h"

namespace {

using octavo::Instruction;
using octavo::KernelRow;
using octavo::Lane;
using octavo::Rows;
using octavo::Step;

struct Args {
  int64_t* in;     // [count]
  int64_t* out;    // [count]
  int64_t* owner;  // [count] times an element was written
  int64_t count;
  int64_t chunk;
};

// out[i] = in[count - 1 - i] + 1: reads what another thread wrote in the op before, so that a missing barrier shows.
void reverse_add(const void* raw, const Step&, const Lane& lane) {
  Args a;
  std::memcpy(&a, raw, sizeof a);
  auto* scratch = static_cast<int64_t*>(lane.scratch);
  for (int64_t begin, end; lane.claim(a.count, a.chunk, &begin, &end);) {
    for (int64_t i = begin; i < end; ++i) scratch[i - begin] = a.in[a.count - 1 - i] + 1;
    for (int64_t i = begin; i < end; ++i) {
      a.out[i] = scratch[i - begin];
      ++a.owner[i];
    }
  }
}

const KernelRow kRow{"reverse_add", "reverse_add__scalar", "scalar", 0, &reverse_add, nullptr, 0, sizeof(Args)};

int fail(const char* what, int threads, long run, long index) {
  std::printf("team_test: %s with %d threads, run %ld, index %ld\n", what, threads, run, index);
  return 1;
}

// `ops` ops over two buffers in turn, `runs` times; every element must have gone through every op exactly once.
int check_program(int threads, int spin, int64_t count, int64_t chunk, int ops, long runs) {
  octavo::Team team(threads, spin);
  octavo::Program program;
  std::vector<int64_t> buffers[2] = {std::vector<int64_t>(count), std::vector<int64_t>(count)};
  std::vector<int64_t> owner(count);
  for (int op = 0; op < ops; ++op) {
    Instruction ins{};
    ins.bands[0] = {0, &kRow};
    ins.num_bands = 1;
    ins.rows = Rows{octavo::kFixed, 1};
    const Args args{buffers[op % 2].data(), buffers[(op + 1) % 2].data(), owner.data(), count, chunk};
    std::memcpy(ins.args, &args, sizeof args);
    program.add(ins);
  }
  const Step step{};
  for (long run = 0; run < runs; ++run) {
    for (int64_t i = 0; i < count; ++i) buffers[0][i] = i * 1000 + run;
    std::fill(owner.begin(), owner.end(), 0);
    const size_t cut = static_cast<size_t>(run % (ops + 1));  // one program, run in two pieces
    program.run(team, step, 0, cut, nullptr, nullptr);
    program.run(team, step, cut, ops, nullptr, nullptr);
    const auto& last = buffers[ops % 2];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t source = ops % 2 ? count - 1 - i : i;
      if (owner[i] != ops) return fail("an element was written a wrong number of times", threads, run, i);
      if (last[i] != source * 1000 + run + ops) return fail("wrong value", threads, run, i);
    }
  }
  return 0;
}

// Every thread takes part in a run when there is work for it; team threads and, for the length of a run, the caller flush
// denormals; the caller's own mode comes back.
int check_denormals(int threads) {
  octavo::Team team(threads, 10);
  const volatile float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<int> kept(threads, -1);
  std::atomic<int> num_met{0};
  auto op = [&](size_t, const Lane& lane) {
    for (int64_t begin, end; lane.claim(threads, 1, &begin, &end);) {
      kept[lane.thread] = tiny * 1.0f != 0.0f;
      ++num_met;
      while (num_met < threads) sched_yield();  // nobody can take two
    }
  };
  team.run(1, op);
  for (int t = 0; t < threads; ++t)
    if (kept[t] != 0) return fail(kept[t] < 0 ? "a thread stayed away" : "a team thread keeps denormals", threads, 0, t);
  return tiny * 1.0f == 0.0f ? fail("the caller lost its denormals", threads, 0, 0) : 0;
}

// A thread that is late in its first op and holds no work is not waited for by the ops, but is before the run returns.
int check_late_thread(int threads) {
  octavo::Team team(threads, 100);
  const auto start = std::chrono::steady_clock::now();
  auto elapsed_ms = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count(); };
  std::atomic<bool> is_one_late{false};
  std::atomic<long> done_ms{0};
  auto op = [&](size_t i, const Lane& lane) {
    while (i == 0 && lane.thread == 0 && !is_one_late) sched_yield();
    if (lane.thread != 0 && !is_one_late.exchange(true)) {
      const timespec late{0, 400'000'000};
      nanosleep(&late, nullptr);
    }
    for (int64_t begin, end; lane.claim(4, 1, &begin, &end);)
      if (i == 19) done_ms = elapsed_ms();
  };
  team.run(20, op);
  if (elapsed_ms() < 400) return fail("a run returned with a thread inside", threads, 0, elapsed_ms());
  return done_ms >= 400 ? fail("ops waited for a thread without work", threads, 0, done_ms) : 0;
}

// The first half of a team takes ascending chunks from the front, the second descending ones from the back; in order, all ascend.
// Every chunk is taken once, of more units than chunks can be counted too.
int check_ends(int threads, long runs) {
  octavo::Team team(threads, 20);
  for (long run = 0; run < runs; ++run) {
    const int64_t total = run % 20 == 19 ? 100'000 : 37 + run % 5;
    std::vector<int> times(total);
    std::atomic<long> num_wrong{0};
    auto op = [&](size_t i, const Lane& lane) {
      const bool in_order = i % 2 != 0, is_front = 2 * lane.thread < threads || threads == 1;
      int64_t last = in_order || is_front ? -1 : total;
      for (int64_t begin, end; lane.claim_next(in_order, total, 1, &begin, &end); last = begin) {
        num_wrong += in_order || is_front ? begin <= last : begin >= last;
        for (int64_t unit = begin; unit < end; ++unit) ++times[unit];
      }
    };
    team.run(4, op);
    if (num_wrong) return fail("chunks came from the wrong end", threads, run, num_wrong);
    for (int64_t unit = 0; unit < total; ++unit)
      if (times[unit] != 4) return fail("a unit was taken a wrong number of times", threads, run, unit);
  }
  return 0;
}

// Ops without a single chunk, alone and between others, and kernels that never claim.
int check_empty_ops(int threads, long runs) {
  octavo::Team team(threads, 20);
  for (long run = 0; run < runs; ++run) {
    std::atomic<int> num_done{0};
    auto op = [&](size_t i, const Lane& lane) {
      if (i % 3 == 2) return;
      for (int64_t begin, end; lane.claim(i % 3 ? 5 : 0, 2, &begin, &end);) num_done += static_cast<int>(end - begin);
    };
    team.run(30, op);
    team.run(0, op);
    if (num_done != 50) return fail("empty ops lost or made work", threads, run, num_done);
  }
  return 0;
}

// A kernel runs from its band's first row to the one before the next band's.
int check_bands() {
  const KernelRow rows[3] = {kRow, kRow, kRow};
  const Instruction ins{{{0, &rows[0]}, {17, &rows[1]}, {65, &rows[2]}}, 3, {}, {}};
  const struct {
    int64_t num_rows;
    int band;
  } wanted[] = {{0, 0}, {16, 0}, {17, 1}, {64, 1}, {65, 2}, {1 << 20, 2}};
  for (const auto& want : wanted)
    if (&ins.kernel(want.num_rows) != &rows[want.band]) return fail("the kernel of other rows", 1, want.num_rows, want.band);
  return 0;
}

// Two teams in one process, driven from two threads at the same time: no state is shared between them.
int check_two_teams(long runs) {
  int results[2] = {0, 0};
  std::thread other([&] { results[1] = check_program(2, 20, 301, 7, 6, runs); });
  results[0] = check_program(3, 20, 257, 5, 5, runs);
  other.join();
  return results[0] || results[1];
}

}  // namespace

int main(int argc, char** argv) {
  const long runs = argc > 1 ? std::atol(argv[1]) : 200;
  int programs = 0;
  for (const int threads : {1, 2, 3, 4, 5, 8, 16}) {
    for (const int spin : {0, 50, 2000}) {  // asleep at once, on the edge, spinning
      if (check_program(threads, spin, 509, 8, 7, runs) || check_program(threads, spin, 64, 64, 4, runs)) return 1;
      programs += 2;
    }
    if (check_denormals(threads) || check_empty_ops(threads, runs) || check_ends(threads, runs)) return 1;
  }
  for (int round = 0; round < 50; ++round) octavo::Team team(1 + round % 16, round % 3);  // made and dropped without a run
  if (check_bands() || check_late_thread(2) || check_late_thread(5) || check_two_teams(runs)) return 1;
  std::printf("team_test: %d programs, %ld runs each, 1 to 16 threads: right\n", programs, runs);
  return 0;
}
