// The other half of gpu/host.h: fibers, the list of kernels, and the C functions by which Python launches them. Included once.
//
// A block's fibers take turns on one stack each. Lanes of a wave run until each has reached a shuffle or a barrier or has ended;
// a shuffle lets the wave go on when all its lanes are there, a barrier the block when all its waves are.
#pragma once

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "exec/wait.h"
#include "exec/kernel.h"
#include "gpu/host.h"
#include "gpu/mma_host.h"

extern "C" void octavo_switch_fiber(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl octavo_switch_fiber
.hidden octavo_switch_fiber
octavo_switch_fiber:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
constexpr int kSavedWords = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl octavo_switch_fiber
.hidden octavo_switch_fiber
octavo_switch_fiber:
  sub sp, sp, #160
  stp x19, x20, [sp]; stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]; stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]; stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]; ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]; ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]; ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "fibers are written for x86-64 and aarch64"
#endif

namespace octavo::gpu {

thread_local Place place;

namespace {

HostRow* rows = nullptr;
constexpr size_t kStackBytes = 256 << 10;
constexpr int kMostWords = 16;  // that a lane tells the others at a time
enum class State : uint8_t { kReady, kAtWave, kAtBlock, kDone };

struct Fiber {
  void* stack_pointer;
  State state;
  int turn;  // which half of the wave's slots its next shuffle uses
};

struct Block {
  const HostRow* row = nullptr;
  const Step* step = nullptr;
  const void* args = nullptr;
  uint8_t* stacks = nullptr;
  int num_stacks = 0;
  void* scheduler = nullptr;
  std::vector<Fiber> fibers;
  std::vector<int32_t> slots;  // [wave][2][kWave][kMostWords]
};
thread_local Block block;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s__%s: %s (block %d %d %d, thread %d)\n", block.row->op, block.row->level, what, place.block[0],
               place.block[1], place.block[2], place.thread);
  std::abort();
}

void yield(State state) {
  Fiber& fiber = block.fibers[static_cast<size_t>(place.thread)];
  fiber.state = state;
  octavo_switch_fiber(&fiber.stack_pointer, block.scheduler);
}

void enter() {
  block.row->run(block.step, block.args);
  yield(State::kDone);
  std::abort();
}

void prepare(int threads) {
  if (block.num_stacks < threads) {
    if (block.stacks) munmap(block.stacks, kStackBytes * static_cast<size_t>(block.num_stacks));
    void* made = mmap(nullptr, kStackBytes * static_cast<size_t>(threads), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    block.stacks = static_cast<uint8_t*>(made);
    block.num_stacks = threads;
  }
  block.fibers.assign(static_cast<size_t>(threads), Fiber{});
  block.slots.assign(static_cast<size_t>(threads) * 2 * kMostWords, 0);
  for (int i = 0; i < threads; ++i) {
    auto* top = reinterpret_cast<void**>(block.stacks + kStackBytes * static_cast<size_t>(i + 1));
#if defined(__x86_64__)
    *--top = nullptr;  // where `enter` would return to; also aligns its stack
    *--top = reinterpret_cast<void*>(&enter);
    top -= kSavedWords;
#else
    top -= 20;
    top[11] = reinterpret_cast<void*>(&enter);  // x30
#endif
    block.fibers[static_cast<size_t>(i)] = Fiber{top, State::kReady, 0};
  }
}

int count(int from, int threads, State state) {
  int found = 0;
  for (int i = from; i < from + threads; ++i) found += block.fibers[static_cast<size_t>(i)].state == state;
  return found;
}

// Runs a wave until all its lanes wait at a barrier or have ended.
void run_wave(int first) {
  for (;;) {
    for (int i = first; i < first + kWave; ++i)
      if (block.fibers[static_cast<size_t>(i)].state == State::kReady) {
        place.thread = i;
        octavo_switch_fiber(&block.scheduler, block.fibers[static_cast<size_t>(i)].stack_pointer);
      }
    const int at_wave = count(first, kWave, State::kAtWave);
    if (at_wave == 0) break;
    if (at_wave != kWave) die("some lanes of a wave reach a shuffle and some do not");
    for (int i = first; i < first + kWave; ++i) block.fibers[static_cast<size_t>(i)].state = State::kReady;
  }
  const int ended = count(first, kWave, State::kDone);
  if (ended != 0 && ended != kWave) die("some lanes of a wave reach a barrier and some have ended");
}

void run_block(int threads) {
  prepare(threads);
  for (int ended = 0; ended < threads;) {
    for (int first = 0; first < threads; first += kWave) run_wave(first);
    ended = count(0, threads, State::kDone);
    for (Fiber& fiber : block.fibers)
      if (fiber.state == State::kAtBlock) fiber.state = State::kReady;
  }
}

}  // namespace

HostRow::HostRow(const char* op, const char* level, const Field* fields, size_t num_fields, size_t args_bytes, int threads,
                 int tile_rows, int tile_outs, HostKernel run)
    : op(op), level(level), fields(fields), num_fields(num_fields), args_bytes(args_bytes), threads(threads), tile_rows(tile_rows),
      tile_outs(tile_outs), run(run), next(rows) {
  rows = this;
}

int thread() { return place.thread; }
void sync() { yield(State::kAtBlock); }
void sync_wave() { yield(State::kAtWave); }
const int32_t* exchange(const int32_t* words, int count) {
  if (count > kMostWords) die("a lane has too many words for the others");
  Fiber& fiber = block.fibers[static_cast<size_t>(place.thread)];
  int32_t* slots = block.slots.data() + static_cast<ptrdiff_t>(place.thread / kWave * 2 + fiber.turn) * kWave * kMostWords;
  fiber.turn ^= 1;
  for (int i = 0; i < count; ++i) slots[place.thread % kWave * count + i] = words[i];
  yield(State::kAtWave);
  return slots;
}
int32_t shuffle(int32_t x, int from) { return exchange(&x, 1)[from % kWave]; }

}  // namespace octavo::gpu

// The kernels as JSON: [{op, level, threads, tile_rows, tile_outs, args_bytes, fields: [[name, offset, kind]]}].
extern "C" const char* octavo_gpu_rows() {
  using namespace octavo;
  static const std::string text = [] {
    static constexpr const char* kKinds[] = {"pointer", "i64", "i32", "f32", "rows", "kernel"};
    std::string out = "[";
    for (const gpu::HostRow* row = gpu::rows; row; row = row->next) {
      out += std::string(out.size() > 1 ? ",\n" : "") + "{\"op\": \"" + row->op + "\", \"level\": \"" + row->level + "\"";
      const auto number = [&](const char* name, size_t value) { out += std::string(", \"") + name + "\": " + std::to_string(value); };
      number("threads", static_cast<size_t>(row->threads));
      number("tile_rows", static_cast<size_t>(row->tile_rows));
      number("tile_outs", static_cast<size_t>(row->tile_outs));
      number("args_bytes", row->args_bytes);
      out += ", \"fields\": [";
      for (size_t i = 0; i < row->num_fields; ++i) {
        const Field& field = row->fields[i];
        out += std::string(i ? ", " : "") + "[\"" + field.name + "\", " + std::to_string(field.offset) + ", \"" +
               kKinds[static_cast<int>(field.kind)] + "\"]";
      }
      out += "]}";
    }
    return out + "]";
  }();
  return text.c_str();
}

// Runs <op>__<level> on every block of the grid, one after the other. `arguments`: the step's address, then the op's arguments.
// 1: there is no such kernel; 2: its blocks have another number of threads.
extern "C" int octavo_gpu_launch(const char* name, int grid_x, int grid_y, int grid_z, int threads, const uint8_t* arguments) {
  using namespace octavo::gpu;
  const HostRow* row = rows;
  while (row && std::string(row->op) + "__" + row->level != name) row = row->next;
  if (!row) return 1;
  if (row->threads != threads || threads % kWave) return 2;
  const octavo::FlushDenormals modes;
  block.row = row;
  block.step = *reinterpret_cast<const octavo::Step* const*>(arguments);
  block.args = arguments + sizeof(void*);
  for (int z = 0; z < grid_z; ++z)
    for (int y = 0; y < grid_y; ++y)
      for (int x = 0; x < grid_x; ++x) {
        place = Place{0, {x, y, z}, {grid_x, grid_y, grid_z}};
        run_block(threads);
      }
  return 0;
}
