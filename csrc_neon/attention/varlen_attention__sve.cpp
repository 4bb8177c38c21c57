// varlen_attention at sve: products by vectors of SVE (sve_dots.inl.h).
#include "attention/sve_dots.inl.h"
#include "attention/varlen_units.inl.h"

namespace octavo::sve {

void varlen_attention(const void* raw, const Step& step, const Lane& lane) {
  varlen_units(raw, step, lane, [](Tile& tile, RowsKV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
    attend_segment_by_vectors(tile, kv, rule, segment, ahead);
  });
}

}  // namespace octavo::sve
