"""The x86 platform: recorded programs over the native kernels."""
