"""NVIDIA's GPUs through the CUDA driver."""
