// The emulated module claims every feature where the shim's AVX2 base is real.
#include "cpu_features.h"

namespace octavo {

uint64_t available_features() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  uint64_t all = 0;
  for (const Level& level : kLevels) all |= level.required;
  return all;
}

}  // namespace octavo
