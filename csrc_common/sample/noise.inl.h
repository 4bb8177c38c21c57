// Sampling noise: Philox4x32-10 keyed by (seed, choice, position, purpose, token), and Gumbel noise made of it.
// Twin of platforms/reference/philox.py, operation by operation. Salmon et al. 2011; Maddison et al. 2014.
#pragma once
#include <cstdint>

#include "vec/math.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct NoiseKey {
  uint64_t seed;
  uint32_t choice;
  int64_t position;
};

// Philox's state for the even or the odd lanes of a vector (vec/scalar.h): four draws per lane.
template <class W>
struct Counter {
  typename W::Wide c0, c1, c2, c3;

  OCTAVO_FN Counter(const NoiseKey& key, typename W::Wide block)
      : c0(block),
        c1(W::same(static_cast<uint32_t>(key.position))),
        c2(W::same(key.choice)),
        c3(W::same(static_cast<uint32_t>((static_cast<uint64_t>(key.position) >> 32) & 0xFFFFFFu))) {}

  OCTAVO_FN void round(uint32_t k0, uint32_t k1) {
    const auto p0 = W::product(c0, 0xD2511F53u), p1 = W::product(c2, 0xCD9E8D57u);
    c0 = W::wxor(W::wxor(W::high(p1), c1), W::same(k0));
    c2 = W::wxor(W::wxor(W::high(p0), c3), W::same(k1));
    c1 = p1;
    c3 = p0;
  }
};

// The draws of tokens 4 q, 4 q + 1, 4 q + 2 and 4 q + 3 for every lane's q.
template <class W>
OCTAVO_FN void noise_draws(const NoiseKey& key, typename W::I q, typename W::I (&words)[4]) {
  Counter<W> even(key, W::even(q)), odd(key, W::odd(q));
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    even.round(k0, k1);
    odd.round(k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = W::join(even.c0, odd.c0);
  words[1] = W::join(even.c1, odd.c1);
  words[2] = W::join(even.c2, odd.c2);
  words[3] = W::join(even.c3, odd.c3);
}

// -log(-log(u)) of u = (draw + 1/2) / 2^32, accurate at both ends, in [-3.2, 22.9].
OCTAVO_FN float gumbel(uint32_t draw) {
  using S = vec::F32x1;
  const bool is_high = draw >= 0x80000000u;
  const float t = (static_cast<float>(static_cast<int32_t>(is_high ? ~draw : draw)) + 0.5f) * 0x1p-32f;
  float k, f;
  vec::log_reduce<S>(is_high ? 1.0f - t : t, &k, &f);
  if (is_high && t < 0.25f) f = -t;
  const float e = -vec::log_parts<S>(k, f);
  vec::log_reduce<S>(e, &k, &f);
  return -vec::log_parts<S>(k, f);
}

constexpr float kMaxGumbel = 23.0f;

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
