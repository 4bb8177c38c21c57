// The thread team and the recorded program under load: many runs, one to eight threads, chunks claimed from the shared counter.
//
// Built on its own (ci/test sanitize, with TSan; tests/native/test_team.py, without). Prints one line, ends non-zero at the first
// wrong result. What a race would show: a chunk done twice or never, an op that starts before its predecessor is done, a
// run that returns early, a lost wake-up (the run hangs; the caller has a time limit).
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
    ins.few = ins.many = &kRow;
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

// Team threads and, for the length of a run, the caller flush denormals; the caller's own mode comes back.
int check_denormals(int threads) {
  octavo::Team team(threads, 10);
  const volatile float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<int> kept(threads);
  auto body = [&](const Lane& lane) { kept[lane.thread] = tiny * 1.0f != 0.0f; };
  team.run(body);
  for (int t = 0; t < threads; ++t)
    if (kept[t]) return fail("a team thread keeps denormals", threads, 0, t);
  return tiny * 1.0f == 0.0f ? fail("the caller lost its denormals", threads, 0, 0) : 0;
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
  for (int threads = 1; threads <= 8; ++threads) {
    for (const int spin : {0, 50, 2000}) {  // asleep at once, on the edge, spinning
      if (check_program(threads, spin, 509, 8, 7, runs) || check_program(threads, spin, 64, 64, 4, runs)) return 1;
      programs += 2;
    }
    if (check_denormals(threads)) return 1;
  }
  for (int round = 0; round < 50; ++round) octavo::Team team(1 + round % 8, round % 3);  // made and dropped without a run
  if (check_two_teams(runs)) return 1;
  std::printf("team_test: %d programs, %ld runs each, 1 to 8 threads: right\n", programs, runs);
  return 0;
}
