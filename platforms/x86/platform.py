"""The x86 platform: AVX2 to AMX."""

from __future__ import annotations

from octavo.platforms.cpu.platform import CpuPlatform


class X86Platform(CpuPlatform):
    """The kernels of csrc_avx."""

    name = "x86"
    module = "octavo._avx"
