// paged_attention_bf16 at svebf16; body in sve_paged.inl.h.
#include "attention/sve_paged.inl.h"

namespace octavo::svebf16 {

void paged_attention_bf16(const void* a, const Step& s, const Lane& l) { paged_attention<BF16, true, false>(a, s, l); }

}  // namespace octavo::svebf16
