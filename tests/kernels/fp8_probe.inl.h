// Runs vec/fp8.h over arrays, on the host or as a kernel of a GPU, for tests/kernels/test_fp8.py.
#pragma once

#include "vec/fp8.h"

namespace octavo {

struct Fp8ProbeArgs {
  const float* x;    // [count], to encode
  int64_t count;     // at least 256
  float* decoded;    // [6, 256]: four dialects, e8m0, e2m1 (of the low four bits)
  uint8_t* encoded;  // [9, count]: four dialects, saturating or not; e4m3_of where the number is within 448
};

namespace probe {

namespace v = OCTAVO_ISA_NS::vec;

template <class Dialect>
OCTAVO_FN void one(int which, int64_t i, const Fp8ProbeArgs& a) {
  if (i < 256) a.decoded[which * 256 + i] = Dialect::decode(static_cast<uint8_t>(i));
  for (int saturate = 0; saturate < 2; ++saturate)
    a.encoded[(which * 2 + saturate) * a.count + i] = Dialect::encode(a.x[i], saturate != 0);
}

OCTAVO_FN void all(int64_t i, const Fp8ProbeArgs& a) {
  one<v::E4M3FN>(0, i, a);
  one<v::E5M2>(1, i, a);
  one<v::E4M3FNUZ>(2, i, a);
  one<v::E5M2FNUZ>(3, i, a);
  const float x = a.x[i];
  a.encoded[8 * a.count + i] = x >= -448.0f && x <= 448.0f ? v::e4m3_of(x) : 0xFF;
  if (i >= 256) return;
  a.decoded[4 * 256 + i] = v::float_of_e8m0(static_cast<uint8_t>(i));
  a.decoded[5 * 256 + i] = v::float_of_e2m1(static_cast<uint8_t>(i & 15));
}

}  // namespace probe
}  // namespace octavo
