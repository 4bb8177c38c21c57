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

// The draw of one token.
inline uint32_t noise_draw(const NoiseKey& key, uint32_t token) {
  uint32_t c0 = token >> 2;
  uint32_t c1 = static_cast<uint32_t>(key.position);
  uint32_t c2 = key.choice;
  uint32_t c3 = static_cast<uint32_t>((static_cast<uint64_t>(key.position) >> 32) & 0xFFFFFFu);
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint32_t words[4] = {c0, c1, c2, c3};
  return words[token & 3];
}

struct LogParts {
  float k, f;
};

inline LogParts log_reduce(float x) {
  using S = vec::F32x1;
  const int32_t u = S::bits(x);
  const int32_t k = S::sar<23>(S::isub(u, 0x3F3504F3));
  return {S::cvt_f32(k), S::from_bits(S::isub(u, S::shl<23>(k))) - 1.0f};
}

inline float log_of_parts(LogParts p) {
  using S = vec::F32x1;
  static constexpr float kPoly[] = {0x1.147f7ep-4f,  -0x1.de810ap-4f, 0x1.e7046ap-4f,  -0x1.fc18d4p-4f, 0x1.23358ep-3f,
                                    -0x1.555c7ap-3f, 0x1.99a4ccp-3f,  -0x1.000006p-2f, 0x1.555548p-2f};
  const float z = p.f * p.f;
  float y = (p.f * z) * vec::horner<S>(p.f, kPoly);
  y = S::fma(z, -0.5f, S::fma(p.k, 0x1.7f7d1cp-20f, y));
  return S::fma(p.k, 0x1.62e400p-1f, p.f + y);
}

// -log(-log(u)) of u = (draw + 1/2) / 2^32, accurate at both ends, in [-3.2, 22.9].
inline float gumbel(uint32_t draw) {
  const bool is_high = draw >= 0x80000000u;
  const float t = (static_cast<float>(static_cast<int32_t>(is_high ? ~draw : draw)) + 0.5f) * 0x1p-32f;
  LogParts p = log_reduce(is_high ? 1.0f - t : t);
  if (is_high && t < 0.25f) p.f = -t;
  const float e = -log_of_parts(p);
  return -log_of_parts(log_reduce(e));
}

constexpr float kMaxGumbel = 23.0f;

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
