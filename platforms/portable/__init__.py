"""The portable platform: numba kernels for chips without ours."""
