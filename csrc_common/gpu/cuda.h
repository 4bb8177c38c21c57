// The shim on NVIDIA GPUs, by nvcc.
#pragma once

#define OCTAVO_GPU_FN __device__ __forceinline__
#define OCTAVO_SHARED(T, name, count) __shared__ T name[count]
#define OCTAVO_TWO_WAVES
#define OCTAVO_WAVES(count)
#define OCTAVO_KERNEL(op, level, Name, threads, tile_rows, tile_outs, ...) \
  extern "C" __global__ void __launch_bounds__(threads, 1) op##__##level(const ::octavo::Step* step_, ::octavo::Name##Args a)

namespace octavo::gpu {

constexpr int kWave = 32;

OCTAVO_GPU_FN int thread() { return static_cast<int>(threadIdx.x); }
OCTAVO_GPU_FN int block_x() { return static_cast<int>(blockIdx.x); }
OCTAVO_GPU_FN int block_y() { return static_cast<int>(blockIdx.y); }
OCTAVO_GPU_FN int block_z() { return static_cast<int>(blockIdx.z); }
OCTAVO_GPU_FN int num_blocks_x() { return static_cast<int>(gridDim.x); }
OCTAVO_GPU_FN int num_blocks_z() { return static_cast<int>(gridDim.z); }

OCTAVO_GPU_FN void sync() { __syncthreads(); }
OCTAVO_GPU_FN void sync_shared() { __syncthreads(); }

// What lanes of a wave wrote to shared memory, the others of it may read.
OCTAVO_GPU_FN void sync_wave() { __syncwarp(); }

// See gpu/hip.h.
OCTAVO_GPU_FN void release() { __threadfence(); }
OCTAVO_GPU_FN void acquire() { __threadfence(); }
OCTAVO_GPU_FN int32_t count_up(int32_t* counter, int32_t by) { return atomicAdd(counter, by); }
OCTAVO_GPU_FN int32_t count_of(const int32_t* counter) { return *static_cast<const volatile int32_t*>(counter); }

// A barrier of the wave's own, which ptxas moves no loads across; at most 15 waves of a block have one.
OCTAVO_GPU_FN void hold_loads() { asm volatile("bar.sync %0, 32;" ::"r"(static_cast<int>(threadIdx.x) / kWave + 1) : "memory"); }

// See gpu/hip.h.
OCTAVO_GPU_FN void keep_order() { asm volatile("" ::: "memory"); }
OCTAVO_GPU_FN int32_t opaque(int32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
OCTAVO_GPU_FN int32_t opaque_uniform(int32_t x) { return opaque(x); }
OCTAVO_GPU_FN int32_t uniform(int32_t x) { return x; }
OCTAVO_GPU_FN int32_t load_uniform(const int32_t* at) { return __ldg(at); }
template <class T>
OCTAVO_GPU_FN T* in_device(T* at) {
  return at;
}

OCTAVO_GPU_FN int32_t word_of_float(float x) { return __float_as_int(x); }
OCTAVO_GPU_FN float float_of_word(int32_t x) { return __int_as_float(x); }

OCTAVO_GPU_FN int32_t shuffle(int32_t x, int from) { return __shfl_sync(0xFFFFFFFFu, x, from); }
OCTAVO_GPU_FN int32_t shuffle_xor(int32_t x, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }

// Sums in shared memory, whole; returns what was there.
OCTAVO_GPU_FN uint32_t add_shared(uint32_t* at, uint32_t x) { return atomicAdd(at, x); }
OCTAVO_GPU_FN uint64_t add_shared(uint64_t* at, uint64_t x) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
}

// c + the sum of four products of signed bytes, exactly.
OCTAVO_GPU_FN int32_t dot4(int32_t a, int32_t b, int32_t c) { return __dp4a(a, b, c); }

}  // namespace octavo::gpu
