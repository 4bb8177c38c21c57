// What this machine can do at most: bytes read from memory a second, and operations a second of the instructions that products
// are made of, operands in registers. Built and run by limits.py; prints one JSON object of rates. A rate is that of the best
// round, as other people's work can only take away from it.
//
//   limits THREADS ROUNDS
//
// A multiplication and an addition are two operations. Instructions are written as assembly, so that no compiler removes or
// reorders what is measured, and none that this chip lacks runs.
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr long kLoops = 400000;
constexpr size_t kReadBytes = size_t{192} << 20;  // of each thread: beyond every cache

// Ten independent sums hide the latency of two units.
#define SUMS_10(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9)

#define KERNEL(name, target_name, type, step)                                                  \
  __attribute__((target(target_name), noinline)) void name() {                                 \
    type s[10] = {}, a = {}, b = {};                                                           \
    for (long i = 0; i < kLoops; ++i) {                                                        \
      SUMS_10(step)                                                                            \
    }                                                                                          \
    SUMS_10(KEEP)                                                                              \
  }

#define KEEP(i) asm volatile("" ::"v"(s[i]));  // constant places only, so that no sum lives in memory
#define FMA(i) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(s[i]) : "v"(a), "v"(b));
#define DOT_I8(i) asm volatile("vpdpbusd %1, %2, %0" : "+v"(s[i]) : "v"(a), "v"(b));
#define DOT_I8_VEX(i) asm volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(s[i]) : "x"(a), "x"(b));
#define DOT_BF16(i) asm volatile("vdpbf16ps %1, %2, %0" : "+v"(s[i]) : "v"(a), "v"(b));
// Without a dot product: pairs to 16 bits, pairs of these to 32 bits, and the sum.
#define PAIRS_I8(i)                                                                                                  \
  {                                                                                                                  \
    __m256i t;                                                                                                       \
    asm volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0" : "+x"(s[i]), "=&x"(t) : "x"(a), "x"(b)); \
  }

KERNEL(f32_avx2, "avx2,fma", __m256, FMA)
KERNEL(f32_avx512, "avx512f", __m512, FMA)
KERNEL(int8_avx2, "avx2", __m256i, PAIRS_I8)
KERNEL(int8_avxvnni, "avx2", __m256i, DOT_I8_VEX)
KERNEL(int8_avx512vnni, "avx512f", __m512i, DOT_I8)
KERNEL(bf16_avx512, "avx512f", __m512, DOT_BF16)

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four sums of two by two tiles, as a product keeps them; the tiles are zero.
#define AMX_KERNEL(name, op)                                                                   \
  void name() {                                                                                \
    static const TileConfig config;                                                            \
    asm volatile("ldtilecfg %0" ::"m"(config));                                                \
    asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t" \
                 "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7" ::); \
    for (long i = 0; i < kLoops / 10; ++i)                                                     \
      asm volatile(op " %%tmm6, %%tmm4, %%tmm0\n\t" op " %%tmm7, %%tmm4, %%tmm1\n\t"           \
                   op " %%tmm6, %%tmm5, %%tmm2\n\t" op " %%tmm7, %%tmm5, %%tmm3" ::);          \
    asm volatile("tilerelease" ::);                                                            \
  }
AMX_KERNEL(int8_amx, "tdpbssd")
AMX_KERNEL(bf16_amx, "tdpbf16ps")

bool has_bit(unsigned leaf, unsigned sub, int reg, int bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3]) && (r[reg] >> bit & 1);
}

bool has_amx() {
  return has_bit(7, 0, 3, 24) && has_bit(7, 0, 3, 25) && has_bit(7, 0, 3, 22) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

struct Kernel {
  const char* name;
  void (*run)();
  double ops;  // of one run
  bool is_there;
};

char* g_memory[256];

__attribute__((target("avx2"), noinline)) void read_all(const char* at) {
  __m256i s[8] = {};
  for (size_t i = 0; i < kReadBytes; i += 256)
    for (int j = 0; j < 8; ++j) s[j] = _mm256_or_si256(s[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i + 32 * j)));
  for (auto& x : s) asm volatile("" ::"x"(x));
}

// Seconds of `work(thread)` in all threads, from a common start to the last end.
template <typename Work>
double together(int threads, Work work) {
  std::atomic<int> ready{0};
  std::vector<std::thread> team;
  std::vector<std::chrono::steady_clock::time_point> ends(threads);
  std::atomic<bool> go{false};
  for (int t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      ++ready;
      while (!go) sched_yield();
      work(t);
      ends[t] = std::chrono::steady_clock::now();
    });
  while (ready < threads) sched_yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  for (auto& thread : team) thread.join();
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::clamp(std::atoi(argv[1]), 1, 256) : 1;
  const int rounds = argc > 2 ? std::clamp(std::atoi(argv[2]), 1, 1000) : 5;
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2"), avx512 = __builtin_cpu_supports("avx512f"), amx = has_amx();
  const double loop = 10.0 * kLoops, tiles = 4.0 * (kLoops / 10);
  const Kernel kernels[] = {
      {"f32__avx2", f32_avx2, loop * 8 * 2, avx2},
      {"f32__avx512", f32_avx512, loop * 16 * 2, avx512},
      {"int8__avx2", int8_avx2, loop * 32 * 2, avx2},
      {"int8__avxvnni", int8_avxvnni, loop * 32 * 2, avx2 && has_bit(7, 1, 0, 4)},
      {"int8__avx512vnni", int8_avx512vnni, loop * 64 * 2, avx512 && has_bit(7, 0, 2, 11)},
      {"bf16__avx512bf16", bf16_avx512, loop * 32 * 2, avx512 && has_bit(7, 1, 0, 5)},
      {"int8__amx", int8_amx, tiles * 16 * 16 * 64 * 2, amx},
      {"bf16__amx", bf16_amx, tiles * 16 * 16 * 32 * 2, amx},
  };
  std::printf("{\"threads\": %d", threads);
  for (const Kernel& kernel : kernels) {
    if (!kernel.is_there) continue;
    double best = 0;
    for (int i = 0; i < rounds; ++i)
      best = std::max(best, kernel.ops * threads / together(threads, [&](int) { kernel.run(); }));
    std::printf(", \"%s\": %.6g", kernel.name, best);
  }
  for (int t = 0; t < threads; ++t) {
    void* at = mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 1;
    madvise(at, kReadBytes, MADV_HUGEPAGE);
    std::memset(at, t + 1, kReadBytes);
    g_memory[t] = static_cast<char*>(at);
  }
  double best = 0;
  for (int i = 0; i < rounds && avx2; ++i)
    best = std::max(best, double(kReadBytes) * threads / together(threads, [&](int t) { read_all(g_memory[t]); }));
  if (avx2) std::printf(", \"read\": %.6g", best);
  std::printf("}\n");
}
