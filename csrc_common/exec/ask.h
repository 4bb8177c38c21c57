// Asks memory for what will be read soon.
#pragma once
#include <cstdint>

namespace octavo {

// Every line of [at, at + bytes). Rows that other threads wrote lie in caches that may be far, and are too short for the hardware
// to find a stream in them: asked for one by one as they are read, they cost a thread most of its time.
[[gnu::always_inline]] inline void ask_for(const void* at, int64_t bytes) {
  const char* p = static_cast<const char*>(at);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
  __builtin_prefetch(p + bytes - 1);
}

}  // namespace octavo
