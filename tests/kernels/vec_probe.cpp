// Runs the vector headers over arrays, under FTZ and DAZ, for tests/kernels/test_vec.py.
#define OCTAVO_ISA_NS probe
#include <immintrin.h>

#include "vec/native.h"

namespace v = octavo::probe::vec;
using V = v::Native;

struct Flushing {
  unsigned saved = _mm_getcsr();
  Flushing() { _mm_setcsr(saved | 0x8040u); }
  ~Flushing() { _mm_setcsr(saved); }
};

template <class Op>
static void over(const float* x, float* y, long n, Op op) {
  const Flushing flushing;
  for (long i = 0; i < n; i += V::kLanes) {
    const int m = n - i < V::kLanes ? static_cast<int>(n - i) : V::kLanes;
    V::store_n(y + i, op(V::load_n(x + i, m)), m);
  }
}

extern "C" {
int lanes() { return V::kLanes; }
#define OCTAVO_UNARY(name) \
  void run_##name(const float* x, float* y, long n) { over(x, y, n, [](V::F a) { return v::name<V>(a); }); }
OCTAVO_UNARY(exp)
OCTAVO_UNARY(log)
OCTAVO_UNARY(tanh)
OCTAVO_UNARY(sigmoid)
OCTAVO_UNARY(erf)
OCTAVO_UNARY(gelu)
OCTAVO_UNARY(gelu_tanh)
OCTAVO_UNARY(silu)

void run_fma(const float* a, const float* b, const float* c, float* y, long n) {
  const Flushing flushing;
  for (long i = 0; i < n; ++i) y[i] = v::fma_scalar(a[i], b[i], c[i]);
}
void run_fma_vector(const float* a, const float* b, const float* c, float* y, long n) {
  const Flushing flushing;
  for (long i = 0; i + V::kLanes <= n; i += V::kLanes)
    V::store(y + i, V::fma(V::load(a + i), V::load(b + i), V::load(c + i)));
}
void run_to_bf16(const float* x, unsigned short* y, long n) {
  const Flushing flushing;
  for (long i = 0; i < n; i += V::kLanes) {
    const int m = n - i < V::kLanes ? static_cast<int>(n - i) : V::kLanes;
    m == V::kLanes ? V::store_bf16(y + i, V::load(x + i)) : V::store_bf16_n(y + i, V::load_n(x + i, m), m);
  }
}
void run_to_f16(const float* x, unsigned short* y, long n) {
  const Flushing flushing;
  for (long i = 0; i < n; i += V::kLanes) {
    const int m = n - i < V::kLanes ? static_cast<int>(n - i) : V::kLanes;
    m == V::kLanes ? V::store_f16(y + i, V::load(x + i)) : V::store_f16_n(y + i, V::load_n(x + i, m), m);
  }
}
void run_from_f16(const unsigned short* x, float* y, long n) {
  const Flushing flushing;
  for (long i = 0; i < n; i += V::kLanes) {
    const int m = n - i < V::kLanes ? static_cast<int>(n - i) : V::kLanes;
    m == V::kLanes ? V::store(y + i, V::load_f16(x + i)) : V::store_n(y + i, V::load_f16_n(x + i, m), m);
  }
}
float run_sum16(const float* x, long n) {
  const Flushing flushing;
  return v::sum16<V>(x, n);
}
float run_sum16_squares(const float* x, long n) {
  const Flushing flushing;
  return v::sum16_squares<V>(x, n);
}
}
