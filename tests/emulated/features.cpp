// The emulated module claims every feature where the shim's AVX2 base is real, and tells how many tiles were loaded.
#include "cpu_features.h"
#include "tiles.h"

// Tile loads and products of the calling thread so far; the tests read them through ctypes.
extern "C" __attribute__((visibility("default"))) void octavo_emulated_tiles(uint64_t* loads, uint64_t* products) {
  *loads = octavo_emulated::tiles().num_loads;
  *products = octavo_emulated::tiles().num_products;
}

namespace octavo {

uint64_t available_features() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  uint64_t all = 0;
  for (const Level& level : kLevels) all |= level.required;
  return all;
}

}  // namespace octavo
