// rms_norm_add: a branch's norm and its sum with the residual stream in one launch, with the bits of the two apart.
#pragma once

#include "gpu/norm_prepare.inl.h"

namespace octavo::gpu {

OCTAVO_GPU_FN void rms_norm_add(const Step& step, const NormAddArgs& a) {
  OCTAVO_SHARED(float, kept, kKeptValues);
  OCTAVO_SHARED(NormOf, shared, 1);
  OCTAVO_EACH(row, num_rows(a.rows, step)) {
    const float* x = a.x + row * a.ldx;
    const float r = norm_of<false>(x, a.width, a.eps, kept, shared).factor;
    const float* from = a.width <= kKeptValues ? kept : x;
    for (int64_t i = thread(); i < a.width; i += kRowThreads) {
      float v = from[i] * r, base = a.a[row * a.lda + i];
      if (a.weight) v = v * a.weight[i];
      if (a.normed) a.normed[row * a.ldnormed + i] = v;
      if (a.scale_a != 1.0f) base = base * a.scale_a;
      if (a.scale_b != 1.0f) v = v * a.scale_b;
      a.y[row * a.ldy + i] = base + v;
    }
    sync();  // the next row takes its place
  }
}

}  // namespace octavo::gpu

OCTAVO_KERNEL(rms_norm_add, simt, NormAdd, 256, 1, 0) { octavo::gpu::rms_norm_add(*step_, a); }
