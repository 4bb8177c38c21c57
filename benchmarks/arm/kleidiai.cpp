// Runs one micro-kernel of KleidiAI once between two marks, for counting its instructions beside ours (beside.py).
//
//   kleidiai FUNCTION n=.. k=.. rows=.. mr=.. kr=.. sr=..   (the last three: the form that inputs are packed into)
//
// Built against a folder of KleidiAI's sources that the user names. Packed matrices are not packed here: memory holds bytes below
// 64, more than enough of them, and no micro-kernel's course depends on values. Nothing clamps.
#include <cfloat>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kai_matmuls.h"  // written by beside.py: the headers of the functions below, where the folder has them

extern "C" {
[[gnu::noinline]] void count_begin() { asm volatile("" ::: "memory"); }
[[gnu::noinline]] void count_end() { asm volatile("" ::: "memory"); }
}

namespace {

struct Call {
  size_t n, k, rows, mr, kr, sr;
  uint8_t *lhs = nullptr, *rhs = nullptr, *out = nullptr;

  // By the types of the function: groups of 32 with a scale each, packed rows, or rows as they lie.
  void run(void (*f)(size_t, size_t, size_t, size_t, const void*, const void*, float*, size_t, size_t, float, float)) const {
    f(rows, n, k, 32, lhs, rhs, reinterpret_cast<float*>(out), 4 * n, 4, -FLT_MAX, FLT_MAX);
  }
  template <class Out>
  void run(void (*f)(size_t, size_t, size_t, const void*, const void*, Out*, size_t, size_t, float, float)) const {
    f(rows, n, k, lhs, rhs, reinterpret_cast<Out*>(out), 4 * n, 4, -FLT_MAX, FLT_MAX);
  }
  void run(void (*f)(size_t, size_t, size_t, const void*, size_t, const void*, void*, size_t, size_t, float, float)) const {
    f(rows, n, k, lhs, 4 * k, rhs, out, 4 * n, 4, -FLT_MAX, FLT_MAX);
  }
  // Inputs: rows of float32 made into the form that a matmul takes.
  void run(void (*f)(size_t, size_t, size_t, size_t, size_t, size_t, size_t, const float*, size_t, void*)) const {
    f(rows, k, 32, mr, kr, sr, 0, reinterpret_cast<const float*>(lhs), 4 * k, out);
  }
  template <class In>
  void run(void (*f)(size_t, size_t, size_t, size_t, size_t, size_t, const In*, size_t, void*)) const {
    f(rows, k, mr, kr, sr, 0, reinterpret_cast<const In*>(lhs), 4 * k, out);
  }
};

template <class F>
void measure(F* function, const Call& call) {
  F* volatile chosen = function;
  count_begin();
  call.run(chosen);
  count_end();
}

// A function of the same type that does nothing.
template <class... T>
[[gnu::noinline]] void nothing(T...) {
  asm volatile("" ::: "memory");
}
template <class... T>
void both(void (*function)(T...), const Call& call) {
  measure(nothing<T...>, call);
  measure(function, call);
}

uint8_t* filled(size_t bytes) {
  auto* at = static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  std::memset(at, 0x3B, bytes);
  return at;
}

size_t number(const char* word) { return static_cast<size_t>(std::atoll(std::strchr(word, '=') + 1)); }

}  // namespace

int main(int count, char** words) {
  if (count != 8) return 2;
  Call call{number(words[2]), number(words[3]), number(words[4]), number(words[5]), number(words[6]), number(words[7])};
  constexpr size_t kRoom = 1 << 16;
  call.lhs = filled(8 * (call.rows + 16) * call.k + kRoom), call.rhs = filled(8 * (call.n + 64) * call.k + kRoom);
  call.out = filled(8 * (call.rows + 16) * (call.n + call.k) + kRoom);
#define OCTAVO_COUNTED(name) \
  if (!std::strcmp(words[1], #name)) return both(name, call), 0;
  OCTAVO_ALL_COUNTED
  std::fprintf(stderr, "no function is named %s\n", words[1]);
  return 2;
}
