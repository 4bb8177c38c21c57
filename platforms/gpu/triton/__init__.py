"""Kernels in Triton's language (github.com/triton-lang/triton), compiled ahead by `ci/gpu_triton.py`.

Nothing of this folder is imported where models run: launchers see code objects and rows of the table of kernels, as of any other.
"""
