// CPUID leaves after Intel SDM vol. 2A (CPUID) and vol. 1 ch. 13-14 (XGETBV); AMX permission after the Linux documentation
// arch/x86/xstate: arch_prctl(ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18). Built for the baseline only.
#include "cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace octavo {
namespace {

struct Regs {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Regs cpuid(uint32_t leaf, uint32_t sub) {
  Regs r;
  if (__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d) == 0) r = Regs{};
  return r;
}

uint64_t xgetbv() {
  uint32_t lo = 0, hi = 0;
  asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}

bool bit(uint32_t word, int n) { return (word >> n) & 1u; }

uint64_t detect() {
  const Regs l1 = cpuid(1, 0);
  if (!bit(l1.c, 27)) return 0;  // OSXSAVE: without it XGETBV faults
  const uint64_t xcr0 = xgetbv();
  const bool has_ymm = (xcr0 & 0x6) == 0x6;
  const bool has_zmm = (xcr0 & 0xe6) == 0xe6;
  const bool has_tiles = (xcr0 & 0x60000) == 0x60000;
  const Regs l7 = cpuid(7, 0);
  const Regs l71 = cpuid(7, 1);

  uint64_t found = 0;
  const bool avx = bit(l1.c, 28) && bit(l1.c, 12) && bit(l1.c, 29);  // AVX, FMA, F16C
  if (has_ymm && avx && bit(l7.b, 5) && bit(l7.b, 8)) found |= kAVX2;
  if (!(found & kAVX2)) return 0;
  if (bit(l71.a, 4)) found |= kAVXVNNI;
  const bool avx512 = bit(l7.b, 16) && bit(l7.b, 17) && bit(l7.b, 28) && bit(l7.b, 30) && bit(l7.b, 31);
  if (!has_zmm || !avx512) return found;
  found |= kAVX512;
  if (bit(l7.c, 11)) found |= kAVX512VNNI;
  if (bit(l7.c, 1)) found |= kAVX512VBMI;
  if (bit(l71.a, 5)) found |= kAVX512BF16;
  if (has_tiles && bit(l7.d, 24) && syscall(SYS_arch_prctl, 0x1023, 18) == 0) {
    found |= kAMXTile;
    if (bit(l7.d, 25)) found |= kAMXInt8;
    if (bit(l7.d, 22)) found |= kAMXBF16;
  }
  return found;
}

}  // namespace

uint64_t available_features() {
  static const uint64_t features = detect();
  return features;
}

}  // namespace octavo
