// softcap: y = cap * tanh(x / cap), rounded step by step. x and y may be the same rows.
#include "contract/token.h"
#include "vec/native.h"

namespace octavo::OCTAVO_ISA_NS {

void softcap(const void* raw, const Step& step, const Lane& lane) {
  using V = vec::Native;
  const auto& a = *static_cast<const SoftcapArgs*>(raw);
  const V::F cap = V::broadcast(a.cap);
  constexpr int64_t kPiece = 2048;  // values per unit: a vocabulary row is worth sharing out
  const int64_t pieces = (a.width + kPiece - 1) / kPiece;
  for (int64_t begin, end; lane.claim(num_rows(a.rows, step) * pieces, 1, &begin, &end);)
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / pieces, from = u % pieces * kPiece;
      const int64_t to = from + kPiece < a.width ? from + kPiece : a.width;
      const float* x = a.x + row * a.ldx;
      float* y = a.y + row * a.ldy;
      int64_t i = from;
      for (; i + V::kLanes <= to; i += V::kLanes)
        V::store(y + i, V::mul(cap, vec::tanh<V>(V::div(V::load(x + i), cap))));
      if (i < to) {
        const int n = static_cast<int>(to - i);
        V::store_n(y + i, V::mul(cap, vec::tanh<V>(V::div(V::load_n(x + i, n), cap))), n);
      }
    }
}

}  // namespace octavo::OCTAVO_ISA_NS
