// greedy_head: of each row of logits that `linear` left in memory the id that greedy sampling takes (platforms/ops.py). A block per row.
#pragma once

#include "contract/token.h"
#include "gpu/rows.inl.h"

namespace octavo {

// x [R, ldx] logits of `width` ids -> y int32 [R, ldy].
struct GreedyPickArgs {
  const float* x;
  int64_t ldx;
  int64_t width;
  int32_t* y;
  int64_t ldy;
  Rows rows;
};
inline constexpr Field kGreedyPickFields[] = {
    OCTAVO_FIELD(GreedyPickArgs, x, pointer), OCTAVO_FIELD(GreedyPickArgs, ldx, i64), OCTAVO_FIELD(GreedyPickArgs, width, i64),
    OCTAVO_FIELD(GreedyPickArgs, y, pointer), OCTAVO_FIELD(GreedyPickArgs, ldy, i64), OCTAVO_FIELD(GreedyPickArgs, rows, rows),
};

namespace gpu {

// NaN and -inf are no candidates, +inf counts as the largest float32, the lowest id of equals wins, -1 if there is none.
OCTAVO_GPU_FN void greedy_head(const Step& step, const GreedyPickArgs& a) {
  OCTAVO_SHARED(float, values, kRowThreads / 32);
  OCTAVO_SHARED(int32_t, ids, kRowThreads / 32);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    float best = 0.0f;
    int32_t id = -1;
    const auto offer = [&](float v, int32_t i) {
      const bool is_better = i >= 0 && (id < 0 || v > best || (v == best && i < id));
      best = is_better ? v : best;
      id = is_better ? i : id;
    };
    for (int64_t i = thread(); i < a.width; i += kRowThreads) {
      const float v = a.x[row * a.ldx + i];
      if (v > -__builtin_inff()) offer(v < __builtin_inff() ? v : 0x1.fffffep+127f, static_cast<int32_t>(i));
    }
    for (int apart = kWave / 2; apart > 0; apart /= 2) {
      const float v = shuffle_xor(best, apart);
      offer(v, shuffle_xor(id, apart));
    }
    if (lane() == 0) {
      values[wave()] = best;
      ids[wave()] = id;
    }
    sync();
    if (thread() == 0) {
      for (int w = 1; w < kRowThreads / kWave; ++w) offer(values[w], ids[w]);
      a.y[row * a.ldy] = id;
    }
    sync();
  }
}

}  // namespace gpu
}  // namespace octavo

OCTAVO_KERNEL(greedy_head, simt, GreedyPick, 256, 1, 0) { octavo::gpu::greedy_head(*step_, a); }
