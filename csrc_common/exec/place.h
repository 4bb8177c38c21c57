// Which CPUs a thread may run on. A wish, not a need: where the system refuses, the thread stays as free as it was.
#pragma once
#include <cerrno>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace octavo {

// Returns 0 or what the system says against it, an errno.
inline int bind_thread(std::thread& thread, const std::vector<int>& cpus) {
#if defined(__linux__)
  int most = 0;
  for (int cpu : cpus) most = cpu > most ? cpu : most;
  cpu_set_t* set = CPU_ALLOC(most + 1);
  if (set == nullptr) return ENOMEM;
  const size_t bytes = CPU_ALLOC_SIZE(most + 1);
  CPU_ZERO_S(bytes, set);
  for (int cpu : cpus)
    if (cpu >= 0) CPU_SET_S(cpu, bytes, set);
  const int refused = pthread_setaffinity_np(thread.native_handle(), bytes, set);
  CPU_FREE(set);
  return refused;
#else
  static_cast<void>(thread);
  static_cast<void>(cpus);
  return ENOSYS;
#endif
}

}  // namespace octavo
