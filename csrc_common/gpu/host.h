// The shim on the host: a block's threads are fibers of one system thread (tests/simt/fibers.h), so that kernels run, and
// whole models with them, where no GPU is. Waves have OCTAVO_WAVE lanes (64 unless told). A shuffle or a barrier that some
// threads of a wave do not reach ends the process with the kernel's name: on a GPU it would be undefined.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(OCTAVO_WAVE)
#define OCTAVO_WAVE 64
#endif

#define OCTAVO_GPU_FN inline
#define OCTAVO_SHARED(T, name, count) static thread_local T name[count]
#define OCTAVO_TWO_WAVES
#define OCTAVO_WAVES(count)
#define OCTAVO_KERNEL(op, level, Name, threads, tile_rows, tile_outs, ...)                                                     \
  static void op##__##level(const ::octavo::Step* step_, const ::octavo::Name##Args& a);                                  \
  static ::octavo::gpu::HostRow op##__##level##_row(                                                                      \
      #op, #level, ::octavo::k##Name##Fields, sizeof(::octavo::k##Name##Fields) / sizeof(::octavo::Field),                \
      sizeof(::octavo::Name##Args), threads, tile_rows, tile_outs, [](const ::octavo::Step* step, const void* args) {     \
        op##__##level(step, *static_cast<const ::octavo::Name##Args*>(args));                                             \
      });                                                                                                                 \
  static void op##__##level(const ::octavo::Step* step_, const ::octavo::Name##Args& a)

namespace octavo {
struct Field;
}

namespace octavo::gpu {

constexpr int kWave = OCTAVO_WAVE;

using HostKernel = void (*)(const Step* step, const void* args);

// One kernel; making one enters it into the list.
struct HostRow {
  HostRow(const char* op, const char* level, const Field* fields, size_t num_fields, size_t args_bytes, int threads, int tile_rows,
          int tile_outs, HostKernel run);
  const char* op;
  const char* level;
  const Field* fields;
  size_t num_fields;
  size_t args_bytes;
  int threads, tile_rows, tile_outs;
  HostKernel run;
  HostRow* next;
};

// Where the running fiber is.
struct Place {
  int thread, block[3], grid[3];
};
extern thread_local Place place;

int thread();
inline int block_x() { return place.block[0]; }
inline int block_y() { return place.block[1]; }
inline int block_z() { return place.block[2]; }
inline int num_blocks_x() { return place.grid[0]; }
inline int num_blocks_z() { return place.grid[2]; }

void sync();
inline void sync_shared() { sync(); }
void sync_wave();

// Blocks run one after the other.
inline void release() {}
inline void acquire() {}
inline int32_t count_up(int32_t* counter, int32_t by) {
  const int32_t old = *counter;
  *counter = old + by;
  return old;
}
inline int32_t count_of(const int32_t* counter) { return *counter; }

inline void keep_order() {}
inline void hold_loads() {}
inline int32_t opaque(int32_t x) { return x; }
inline int32_t opaque_uniform(int32_t x) { return x; }
inline int32_t uniform(int32_t x) { return x; }
inline int32_t load_uniform(const int32_t* at) { return *at; }
template <class T>
inline T* in_device(T* at) {
  return at;
}

inline int32_t word_of_float(float x) { return __builtin_bit_cast(int32_t, x); }
inline float float_of_word(int32_t x) { return __builtin_bit_cast(float, x); }

int32_t shuffle(int32_t x, int from);
inline int32_t shuffle_xor(int32_t x, int mask) { return shuffle(x, (thread() % kWave) ^ mask); }

// Sums in shared memory, whole; returns what was there. Fibers take turns only at shuffles and barriers.
template <class T>
T add_shared(T* at, T x) {
  const T old = *at;
  *at = old + x;
  return old;
}

inline int32_t dot4(int32_t a, int32_t b, int32_t c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}

}  // namespace octavo::gpu
