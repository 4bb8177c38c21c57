"""The Arm platform: NEON of Armv8.0 and what newer cores add."""

from __future__ import annotations

from octavo.platforms.cpu.platform import CpuPlatform


class ArmPlatform(CpuPlatform):
    """The kernels of csrc_neon."""

    name = "arm"
    module = "octavo._neon"
