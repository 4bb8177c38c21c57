// How a function is declared that CPUs and GPUs share.
#pragma once

#if defined(__HIP__)
#define OCTAVO_FN __attribute__((host)) __attribute__((device)) inline
#elif defined(__CUDACC__)
#define OCTAVO_FN __host__ __device__ inline
#else
#define OCTAVO_FN inline
#endif
