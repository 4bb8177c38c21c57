// embedding, add, gather_rows, softcap, pool: the token ops of platforms/ops.py, with the bits of CPUs.
#pragma once

#include "contract/token.h"
#include "gpu/gguf_codes.inl.h"
#include "gpu/rows.inl.h"

namespace octavo::gpu {

// -- embedding: every value by a thread, decoded as quant/ unpacks it: each product and sum rounded once
template <class Value>
OCTAVO_GPU_FN void embed(const Step& step, const EmbeddingArgs& a, Value&& value) {
  const int32_t* ids = a.source == 0 ? step.token_ids : a.source == 1 ? step.positions : step.token_types;
  each_element(step.num_tokens, a.width, [&](int64_t t, int64_t i) {
    const float v = value(static_cast<const uint8_t*>(a.table) + ids[t] * a.row_bytes, static_cast<int>(i));
    a.y[t * a.ldy + i] = a.scale == 1.0f ? v : v * a.scale;
  });
}
template <class Gguf>
OCTAVO_GPU_FN void embed_blocks(const Step& step, const EmbeddingArgs& a) {
  embed(step, a, [](const uint8_t* row, int i) {
    const uint8_t* b = row + static_cast<int64_t>(i / Gguf::kInputs) * Gguf::kBytes;
    const int j = i % Gguf::kInputs;
    const float d = vec::float_of_f16(Gguf::d(b)), m = Gguf::kMin ? vec::float_of_f16(Gguf::m(b)) : 0.0f;
    if constexpr (Gguf::kInputs == 32) {
      const float v = static_cast<float>(Gguf::code(b, j)) * d;
      return Gguf::kMin ? v + m : v;
    } else {
      const float v = static_cast<float>(Gguf::code(b, j)) * (d * static_cast<float>(Gguf::sub_scale(b, j / Gguf::kGroup)));
      return Gguf::kMin ? v - m * static_cast<float>(Gguf::sub_min(b, j / Gguf::kGroup)) : v;
    }
  });
}

// -- pool: a block per sequence and run of columns; `normalize` needs the whole row, so then one block takes all of it
OCTAVO_GPU_FN float pooled(const PoolArgs& a, int64_t first, int64_t rows, int64_t i) {
  if (a.mode != 2) return a.x[(a.mode == 0 ? first : first + rows - 1) * a.ldx + i];
  float sum = 0.0f;
  for (int64_t r = 0; r < rows; ++r) sum = sum + a.x[(first + r) * a.ldx + i];
  return sum / static_cast<float>(rows);
}
OCTAVO_GPU_FN void pool(const Step& step, const PoolArgs& a) {
  OCTAVO_EACH(s, step.num_seqs) {
    const int64_t first = step.query_start[s], rows = step.query_start[s + 1] - first;
    float* y = a.y + s * a.ldy;
    for (int64_t i = thread(); i < a.width; i += kRowThreads) y[i] = pooled(a, first, rows, i);
    if (!a.normalize) continue;
    sync();
    const float norm = V::sqrt(sum16_squares(a.width, [&](int64_t i) { return y[i]; }));
    const float divisor = norm < 1e-12f ? 1e-12f : norm;  // NaN stays
    sync();
    for (int64_t i = thread(); i < a.width; i += kRowThreads) y[i] = y[i] / divisor;
  }
}

}  // namespace octavo::gpu

#define OCTAVO_EMBEDDING(form, ...) \
  OCTAVO_KERNEL(embedding_##form, simt, Embedding, 256, 1, 256) { __VA_ARGS__; }
OCTAVO_EMBEDDING(f32, octavo::gpu::embed(*step_, a, [](const uint8_t* row, int i) { return reinterpret_cast<const float*>(row)[i]; }))
OCTAVO_EMBEDDING(f16, octavo::gpu::embed(*step_, a, [](const uint8_t* row, int i) {
  return octavo::gpu::vec::float_of_f16(reinterpret_cast<const uint16_t*>(row)[i]);
}))
OCTAVO_EMBEDDING(bf16, octavo::gpu::embed(*step_, a, [](const uint8_t* row, int i) {
  return octavo::gpu::vec::float_of_bf16(reinterpret_cast<const uint16_t*>(row)[i]);
}))
OCTAVO_EMBEDDING(q4_0, octavo::gpu::embed_blocks<octavo::gpu::Q4_0>(*step_, a))
OCTAVO_EMBEDDING(q4_1, octavo::gpu::embed_blocks<octavo::gpu::Q4_1>(*step_, a))
OCTAVO_EMBEDDING(q5_0, octavo::gpu::embed_blocks<octavo::gpu::Q5_0>(*step_, a))
OCTAVO_EMBEDDING(q5_1, octavo::gpu::embed_blocks<octavo::gpu::Q5_1>(*step_, a))
OCTAVO_EMBEDDING(q8_0, octavo::gpu::embed_blocks<octavo::gpu::Q8_0>(*step_, a))
OCTAVO_EMBEDDING(q2_k, octavo::gpu::embed_blocks<octavo::gpu::Q2K>(*step_, a))
OCTAVO_EMBEDDING(q3_k, octavo::gpu::embed_blocks<octavo::gpu::Q3K>(*step_, a))
OCTAVO_EMBEDDING(q4_k, octavo::gpu::embed_blocks<octavo::gpu::Q4K>(*step_, a))
OCTAVO_EMBEDDING(q5_k, octavo::gpu::embed_blocks<octavo::gpu::Q5K>(*step_, a))
OCTAVO_EMBEDDING(q6_k, octavo::gpu::embed_blocks<octavo::gpu::Q6K>(*step_, a))

OCTAVO_KERNEL(add, simt, Add, 256, 1, 256) {
  using octavo::gpu::V;
  octavo::gpu::each_element(octavo::num_rows(a.rows, *step_), a.width, [&](int64_t row, int64_t i) {
    float x = a.a[row * a.lda + i], y = a.b[row * a.ldb + i];
    if (a.scale_a != 1.0f) x = x * a.scale_a;
    if (a.scale_b != 1.0f) y = y * a.scale_b;
    a.y[row * a.ldy + i] = x + y;
  });
}
OCTAVO_KERNEL(gather_rows, simt, Gather, 256, 1, 256) {
  octavo::gpu::each_element(step_->num_logits, a.width, [&](int64_t row, int64_t i) {
    a.y[row * a.ldy + i] = a.x[step_->logits_rows[row] * a.ldx + i];
  });
}
OCTAVO_KERNEL(softcap, simt, Softcap, 256, 1, 256) {
  using octavo::gpu::V;
  octavo::gpu::each_element(octavo::num_rows(a.rows, *step_), a.width, [&](int64_t row, int64_t i) {
    a.y[row * a.ldy + i] = a.cap * octavo::gpu::vec::tanh<V>(a.x[row * a.ldx + i] / a.cap);
  });
}
OCTAVO_KERNEL(pool, simt, Pool, 256, 1, 0) { octavo::gpu::pool(*step_, a); }
