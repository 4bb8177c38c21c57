"""The x86 platform: AVX2 to AMX."""

from __future__ import annotations

from octavo.platforms.chip import read_cpuinfo
from octavo.platforms.cpu.platform import CpuPlatform


class X86Platform(CpuPlatform):
    """The kernels of csrc_avx."""

    name = "x86"
    module = "octavo._avx"

    def refuse_levels(self) -> None:
        """Attention of avx512bf16 on Intel's chips, unless levels were asked for. What VDPBF16PS multiplies there in a second is
        half of what float32 FMA does (Emerald Rapids, one thread: 148 and 310 GFLOP/s); on Zen it is nearly twice. A product of
        one row, which memory bounds, keeps it: it reads fewer instructions a weight."""
        native = self.native
        if native.isa is not None or read_cpuinfo().get("vendor_id") != "GenuineIntel":
            return
        reason = "on Intel's chips VDPBF16PS takes twice as long as float32 FMA for the same products"
        slow = [row.name for row in native.rows if row.level == "avx512bf16" and "attention" in row.op]
        native.passed_over.update(dict.fromkeys(slow, reason))
