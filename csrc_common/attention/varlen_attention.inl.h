// varlen_attention over vectors of the level (varlen_units.inl.h).
#include "attention/varlen_units.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void varlen_attention(const void* a, const Step& s, const Lane& l) { varlen_attention_of<RowsKV>(a, s, l); }
void varlen_attention_bf16(const void* a, const Step& s, const Lane& l) { varlen_attention_of<TilesKV>(a, s, l); }

}  // namespace octavo::OCTAVO_ISA_NS
