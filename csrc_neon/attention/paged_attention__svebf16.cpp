// paged_attention_{bf16,int8,fp8} at svebf16: products by vectors of SVE, pairs of bfloat16 by BFMLALB and BFMLALT.
#include "attention/sve_dots.inl.h"
// Their dot32_block comes before its use.
#include "attention/paged_segments.inl.h"

namespace octavo::svebf16 {

void paged_attention_bf16(const void* a, const Step& s, const Lane& l) { paged_attention<BF16, true, false>(a, s, l); }
void paged_attention_int8(const void* a, const Step& s, const Lane& l) { paged_attention<int8_t, true, true>(a, s, l); }
void paged_attention_fp8(const void* a, const Step& s, const Lane& l) { paged_attention<E4M3, true, true>(a, s, l); }

}  // namespace octavo::svebf16
