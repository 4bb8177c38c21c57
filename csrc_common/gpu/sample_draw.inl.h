// Step 5 of sampling: the greatest value + Gumbel noise, the lowest id of equals.
//
// A first round of tokens gives a sum to beat. Noise of a draw w is at least t only if 1 - u = (~w + 1/2) / 2^32 <= exp(-t),
// since 1 - exp(-z) <= z; so the other draws are held against exp(value - sum to beat), a little enlarged, and the few tokens
// that pass get their noise in the contract's arithmetic, as on CPUs (csrc_common/sample/draw.inl.h).
#pragma once

#include "gpu/sample_values.inl.h"
#include "sample/noise.inl.h"

namespace octavo::gpu {

// At least exp(x) of x <= 0, and at most a tenth more: between powers of two 2^t is below the line that its bits make.
OCTAVO_GPU_FN float above_exp(float x) {
  constexpr float kOne = 0x1.0p+23f;
  const float bits = V::fma(x, 0x1.715476p+0f * kOne, 127.0f * kOne);
  return float_of_word(static_cast<int32_t>(V::max(bits, kOne)));
}

// Whether the noise of `word` may lift y to `least`.
OCTAVO_GPU_FN bool is_hopeful(float y, uint32_t word, float least) {
  constexpr float kSlack = 0.01f, kRounding = 0x1p-21f;
  const float gap = (y - least) + (kSlack + kRounding * V::abs(least));
  return !(static_cast<float>(~word >> 1) > above_exp(V::min(gap, 0.0f)) * 0x1p+31f);
}

OCTAVO_GPU_FN BestToken draw(const SampleArgs& a, int64_t r, const SampleRow& row, const SampleRoom& room) {
  namespace isa = OCTAVO_ISA_NS;
  const isa::NoiseKey key{a.seed[r], a.choice[r], a.position[r]};
  BestToken best;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {  // one body, for the size of the code
    each_four(row, turn, turn == 0 ? 1 : kAllRounds, [&](const float(&y)[4], int64_t i) {
      const float most = V::max(V::max(y[0], y[1]), V::max(y[2], y[3]));
      if (!(most > -kInf) || most + isa::kMaxGumbel < best.value) return;
      int32_t words[4];
      isa::noise_draws<V>(key, static_cast<int32_t>(i / 4), words);
      uint32_t hopeful = 0;
      for (int j = 0; j < 4; ++j)
        if (y[j] > -kInf && (best.id < 0 || is_hopeful(y[j], static_cast<uint32_t>(words[j]), best.value))) hopeful |= 1u << j;
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        if (!(hopeful >> j & 1u)) continue;
        const float value = j == 0 ? y[0] : j == 1 ? y[1] : j == 2 ? y[2] : y[3];
        const int32_t word = j == 0 ? words[0] : j == 1 ? words[1] : j == 2 ? words[2] : words[3];
        best.offer(value + isa::gumbel(static_cast<uint32_t>(word)), static_cast<int32_t>(i + j));
      }
    });
    best = block_best(best, room);
  }
  return best;
}

}  // namespace octavo::gpu
