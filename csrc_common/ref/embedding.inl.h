// embedding_<format>: y[token] = decode(table[id]) * scale, the id being the token's, its position or its segment.
//
// Rows are decoded as quant/ unpacks them: q * d (+ m), or q * (d * sub_scale) (- dmin * sub_min), every product and sum
// rounded once; f32, f16 and bf16 rows are widened exactly. The scale is a further product, skipped where it is 1.
// One body for every level, over the vector class V (dense rows) and plain loops (blocks).
#pragma once
#include "contract/token.h"
#include "packed/gguf_blocks.inl.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

template <class Gguf>
inline void decode_row(const uint8_t* row, int64_t width, float* y) {
  for (int64_t i = 0; i < width; i += Gguf::kInputs, row += Gguf::kBytes, y += Gguf::kInputs) {
    Block b;
    Gguf::unpack(row, &b);
    const float d = vec::float_of_f16(b.d), m = Gguf::kMin ? vec::float_of_f16(b.m) : 0.0f;
    if constexpr (Gguf::kInputs == 32) {
      for (int j = 0; j < 32; ++j) {
        const float v = static_cast<float>(b.codes[j]) * d;
        y[j] = Gguf::kMin ? v + m : v;
      }
    } else {
      for (int sub = 0; sub < 256 / Gguf::kGroup; ++sub) {
        const float s = d * static_cast<float>(b.sub_scales[sub]);
        const float low = Gguf::kMin ? m * static_cast<float>(b.sub_mins[sub]) : 0.0f;
        for (int j = sub * Gguf::kGroup; j < (sub + 1) * Gguf::kGroup; ++j) {
          const float v = static_cast<float>(b.codes[j]) * s;
          y[j] = Gguf::kMin ? v - low : v;
        }
      }
    }
  }
}

using V = vec::Native;

template <class Load, class LoadN>
inline void widen_row(int64_t width, float* y, Load&& load, LoadN&& load_n) {
  int64_t i = 0;
  for (; i + V::kLanes <= width; i += V::kLanes) V::store(y + i, load(i));
  if (i < width) V::store_n(y + i, load_n(i, static_cast<int>(width - i)), static_cast<int>(width - i));
}

template <class Decode>
inline void run_rows(const void* raw, const Step& step, const Lane& lane, Decode&& decode) {
  const auto& a = *static_cast<const EmbeddingArgs*>(raw);
  const int32_t* ids = a.source == 0 ? step.token_ids : a.source == 1 ? step.positions : step.token_types;
  const int64_t chunk = lane.worthwhile(step.num_tokens, a.width);
  for (int64_t begin, end; lane.claim(step.num_tokens, chunk, &begin, &end);)
    for (int64_t t = begin; t < end; ++t) {
      float* y = a.y + t * a.ldy;
      decode(static_cast<const uint8_t*>(a.table) + ids[t] * a.row_bytes, a.width, y);
      if (a.scale != 1.0f)
        for (int64_t i = 0; i < a.width; ++i) y[i] = y[i] * a.scale;
    }
}

}  // namespace

void embedding_f32(const void* raw, const Step& step, const Lane& lane) {
  run_rows(raw, step, lane, [](const uint8_t* row, int64_t width, float* y) {
    std::memcpy(y, row, static_cast<size_t>(width) * sizeof(float));
  });
}
void embedding_f16(const void* raw, const Step& step, const Lane& lane) {
  run_rows(raw, step, lane, [](const uint8_t* row, int64_t width, float* y) {
    const uint16_t* h = reinterpret_cast<const uint16_t*>(row);
    widen_row(width, y, [h](int64_t i) { return V::load_f16(h + i); }, [h](int64_t i, int n) { return V::load_f16_n(h + i, n); });
  });
}
void embedding_bf16(const void* raw, const Step& step, const Lane& lane) {
  run_rows(raw, step, lane, [](const uint8_t* row, int64_t width, float* y) {
    const uint16_t* h = reinterpret_cast<const uint16_t*>(row);
    widen_row(
        width, y, [h](int64_t i) { return V::load_bf16(h + i); }, [h](int64_t i, int n) { return V::load_bf16_n(h + i, n); });
  });
}

#define OCTAVO_EMBEDDING(name, Gguf)                                             \
  void embedding_##name(const void* raw, const Step& step, const Lane& lane) { \
    run_rows(raw, step, lane, decode_row<Gguf>);                               \
  }
OCTAVO_EMBEDDING(q4_0, GgufQ4_0)
OCTAVO_EMBEDDING(q4_1, GgufQ4_1)
OCTAVO_EMBEDDING(q5_0, GgufQ5_0)
OCTAVO_EMBEDDING(q5_1, GgufQ5_1)
OCTAVO_EMBEDDING(q8_0, GgufQ8_0)
OCTAVO_EMBEDDING(q2_k, GgufQ2_K)
OCTAVO_EMBEDDING(q3_k, GgufQ3_K)
OCTAVO_EMBEDDING(q4_k, GgufQ4_K)
OCTAVO_EMBEDDING(q5_k, GgufQ5_K)
OCTAVO_EMBEDDING(q6_k, GgufQ6_K)
#undef OCTAVO_EMBEDDING

}  // namespace octavo::OCTAVO_ISA_NS
