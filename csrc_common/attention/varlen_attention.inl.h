// varlen_attention over vectors of the level (varlen_units.inl.h).
#include "attention/varlen_units.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void varlen_attention(const void* raw, const Step& step, const Lane& lane) {
  varlen_units(raw, step, lane, [](Tile& tile, RowsKV& kv, const ScoreRule& rule, int64_t segment, NoAhead& ahead) {
    attend_segment<V>(tile, kv, rule, segment, ahead);
  });
}

}  // namespace octavo::OCTAVO_ISA_NS
