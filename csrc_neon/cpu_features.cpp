// Bits of HWCAP and HWCAP2 after arch/arm64/include/uapi/asm/hwcap.h, PR_SVE_GET_VL after Documentation/arch/arm64/sve.rst;
// written out, so that older headers do. Built for the baseline only.
#include "cpu_features.h"

#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace octavo {
namespace {

constexpr uint64_t kHwcapDotProd = 1u << 20, kHwcapSVE = 1u << 22;
constexpr uint64_t kHwcap2SVEI8MM = 1u << 9, kHwcap2SVEBF16 = 1u << 12, kHwcap2I8MM = 1u << 13, kHwcap2BF16 = 1u << 14;

#if defined(__linux__)

constexpr unsigned long kAtHwcap = 16, kAtHwcap2 = 26;
constexpr int kGetVectorLength = 51, kLengthMask = 0xffff;

int64_t vector_bytes() {
  const int found = prctl(kGetVectorLength, 0, 0, 0, 0);
  return found < 0 ? 0 : found & kLengthMask;
}
uint64_t detect() { return features_of(getauxval(kAtHwcap), getauxval(kAtHwcap2), vector_bytes()); }

#elif defined(__APPLE__)

bool has(const char* name) {
  int32_t value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
}
int64_t vector_bytes() { return 0; }
uint64_t detect() {
  return features_of(has("hw.optional.arm.FEAT_DotProd") ? kHwcapDotProd : 0,
                     (has("hw.optional.arm.FEAT_I8MM") ? kHwcap2I8MM : 0) | (has("hw.optional.arm.FEAT_BF16") ? kHwcap2BF16 : 0), 0);
}

#else

int64_t vector_bytes() { return 0; }
uint64_t detect() { return 0; }

#endif

}  // namespace

int64_t sve_bytes() { return vector_bytes(); }

uint64_t features_of(uint64_t hwcap, uint64_t hwcap2, int64_t sve_bytes) {
  uint64_t found = 0;
  if (hwcap & kHwcapDotProd) found |= kDotProd;
  if (hwcap2 & kHwcap2I8MM) found |= kI8MM;
  if (hwcap2 & kHwcap2BF16) found |= kBF16;
  const bool is_verified = sve_bytes == 16 || sve_bytes == 32 || sve_bytes == 64;
  if (!(hwcap & kHwcapSVE) || !is_verified) return found;
  found |= kSVE;
  if (hwcap2 & kHwcap2SVEI8MM) found |= kSVEI8MM;
  if (hwcap2 & kHwcap2SVEBF16) found |= kSVEBF16;
  return found;
}

uint64_t available_features() {
  static const uint64_t features = detect();
  return features;
}

}  // namespace octavo
