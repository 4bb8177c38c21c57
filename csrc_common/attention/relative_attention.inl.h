// relative_attention over vectors of the level (relative_units.inl.h).
#include "attention/relative_units.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void relative_attention(const void* a, const Step& s, const Lane& l) { relative_attention_of<RowsKV>(a, s, l); }
void relative_attention_bf16(const void* a, const Step& s, const Lane& l) { relative_attention_of<TilesKV>(a, s, l); }

}  // namespace octavo::OCTAVO_ISA_NS
