// What is done to codes on their way into panels, for the products of a chip family.
//
// x86 multiplies unsigned codes with signed inputs: W8A8's get 128 added. Arm multiplies signed ones: those stay as they are, and
// nibbles with the zero point 8 (Q4_0, 4-bit groups without zero points of their own) become two's complement, so that a shift or a
// mask gives 16 times the signed code.
#pragma once
#include <cstdint>

namespace octavo {

#if defined(__aarch64__)
constexpr uint8_t kByteFlip = 0, kNibbleFlip = 0x88;
#else
constexpr uint8_t kByteFlip = 128, kNibbleFlip = 0;
#endif

}  // namespace octavo
