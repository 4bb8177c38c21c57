"""Signs of a GPU, looked for at every start: a few looks at files, nothing imported."""

from __future__ import annotations

import os

#: kind -> what the kernel shows once its driver is loaded (of Windows' Linux: the library that it lends)
_SIGNS = {
    "cuda": ("dev/nvidiactl", "sys/module/nvidia", "sys/module/nvgpu", "usr/lib/wsl/lib/libcuda.so.1"),
    "rocm": ("dev/kfd",),
}


def has_signs(kind: str, root: str = "/") -> bool:
    """Whether the kernel's driver of such GPUs (cuda, rocm) is there."""
    return any(os.path.exists(f"{root}/{sign}") for sign in _SIGNS[kind])
