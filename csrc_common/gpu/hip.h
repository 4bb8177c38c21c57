// The shim on AMD GPUs, by clang alone: no header or library of ROCm is needed. wave64 on CDNA, wave32 on RDNA.
#pragma once

#define OCTAVO_GPU_FN __attribute__((device)) __attribute__((always_inline)) inline
#define OCTAVO_SHARED(T, name, count) static __attribute__((shared)) T name[count]
#define OCTAVO_KERNEL(op, level, Name, threads, tile_rows, tile_outs, ...)                                            \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) __VA_ARGS__ void \
      op##__##level(const ::octavo::Step* step_, ::octavo::Name##Args a)
#define OCTAVO_TWO_WAVES OCTAVO_WAVES(2)
#define OCTAVO_WAVES(count) __attribute__((amdgpu_waves_per_eu(count)))

namespace octavo::gpu {

#if defined(__GFX9__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif

OCTAVO_GPU_FN int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
OCTAVO_GPU_FN int block_x() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
OCTAVO_GPU_FN int block_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
OCTAVO_GPU_FN int block_z() { return static_cast<int>(__builtin_amdgcn_workgroup_id_z()); }
OCTAVO_GPU_FN int num_blocks_x() {
  return static_cast<int>(__builtin_amdgcn_grid_size_x() / static_cast<unsigned>(__builtin_amdgcn_workgroup_size_x()));
}
OCTAVO_GPU_FN int num_blocks_z() {
  return static_cast<int>(__builtin_amdgcn_grid_size_z() / static_cast<unsigned>(__builtin_amdgcn_workgroup_size_z()));
}

OCTAVO_GPU_FN void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The same for shared memory alone: other memory's stores need not have ended, and RDNA keeps its caches.
OCTAVO_GPU_FN void sync_shared() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// What lanes of a wave wrote to shared memory, the others of it may read.
OCTAVO_GPU_FN void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Blocks that work on one result: what a thread wrote is seen by other blocks' threads behind `release`, `count_up` and `acquire`.
OCTAVO_GPU_FN void release() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
OCTAVO_GPU_FN void acquire() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
// Adds to a counter; what was there before. And what is there now.
OCTAVO_GPU_FN int32_t count_up(int32_t* counter, int32_t by) {
  return __scoped_atomic_fetch_add(counter, by, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
}
OCTAVO_GPU_FN int32_t count_of(const int32_t* counter) {
  return __scoped_atomic_load_n(counter, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

// The compiler moves nothing across it: loads that it would all begin at once need registers, and so does what it would keep of
// shared memory.
OCTAVO_GPU_FN void keep_order() {
  __asm__ volatile("" ::: "memory");
  __builtin_amdgcn_sched_barrier(0);
}
OCTAVO_GPU_FN void hold_loads() {}  // see gpu/cuda.h

// A value about which nothing is known: what follows from it is computed where it is needed, and held in no register meanwhile.
OCTAVO_GPU_FN int32_t opaque(int32_t x) {
  __asm__ volatile("" : "+v"(x));
  return x;
}
// What is the same in all lanes of a wave, known as such: it then needs one register of the wave.
OCTAVO_GPU_FN int32_t uniform(int32_t x) { return __builtin_amdgcn_readfirstlane(x); }
// `opaque` of what all lanes share.
OCTAVO_GPU_FN int32_t opaque_uniform(int32_t x) {
  x = uniform(x);
  __asm__ volatile("" : "+s"(x));
  return x;
}
// A word that no kernel of the step writes, at an address that all lanes of a wave share.
OCTAVO_GPU_FN int32_t load_uniform(const int32_t* at) {
  return *(const __attribute__((address_space(4))) int32_t*)at;
}

// A pointer read from memory may be to memory of the block, for all that the compiler knows; this one is not.
template <class T>
OCTAVO_GPU_FN T* in_device(T* at) {
  return (T*)(__attribute__((address_space(1))) T*)at;
}

OCTAVO_GPU_FN int32_t word_of_float(float x) { return __builtin_bit_cast(int32_t, x); }
OCTAVO_GPU_FN float float_of_word(int32_t x) { return __builtin_bit_cast(float, x); }

OCTAVO_GPU_FN int32_t shuffle(int32_t x, int from) { return __builtin_amdgcn_ds_bpermute(from << 2, x); }
OCTAVO_GPU_FN int32_t shuffle_xor(int32_t x, int mask) {
  const int lane = thread() % kWave;
  return __builtin_amdgcn_ds_bpermute((lane ^ mask) << 2, x);
}

// Sums in shared memory, whole; returns what was there.
template <class T>
OCTAVO_GPU_FN T add_shared(T* at, T x) {
  return __hip_atomic_fetch_add(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// c + the sum of four products of signed bytes, exactly.
OCTAVO_GPU_FN int32_t dot4(int32_t a, int32_t b, int32_t c) {
#if defined(__GFX9__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#else
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#endif
}

}  // namespace octavo::gpu
