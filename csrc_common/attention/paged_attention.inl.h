// paged_attention_{f32,bf16,f16,int8,fp8} of a level without products of its own.
#include "attention/paged_segments.inl.h"

namespace octavo::OCTAVO_ISA_NS {

void paged_attention_f32(const void* a, const Step& s, const Lane& l) { paged_attention<float, false, false>(a, s, l); }
void paged_attention_bf16(const void* a, const Step& s, const Lane& l) { paged_attention<BF16, true, false>(a, s, l); }
void paged_attention_f16(const void* a, const Step& s, const Lane& l) { paged_attention<F16, false, false>(a, s, l); }
void paged_attention_int8(const void* a, const Step& s, const Lane& l) { paged_attention<int8_t, true, true>(a, s, l); }
void paged_attention_fp8(const void* a, const Step& s, const Lane& l) { paged_attention<E4M3, true, true>(a, s, l); }

}  // namespace octavo::OCTAVO_ISA_NS
