// The widest vector class of the translation unit's instruction set, as `vec::Native`, with the functions over it.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "avx512.h"
namespace octavo::OCTAVO_ISA_NS::vec {
using Native = F32x16;
}
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "avx2.h"
namespace octavo::OCTAVO_ISA_NS::vec {
using Native = F32x8;
}
#elif defined(__aarch64__)
#include "neon.h"
namespace octavo::OCTAVO_ISA_NS::vec {
using Native = F32x4;
}
#else
#include "scalar.h"
namespace octavo::OCTAVO_ISA_NS::vec {
using Native = F32x1;
}
#endif

#include "math.inl.h"
#include "sum16.inl.h"
