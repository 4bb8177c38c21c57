"""The Arm platform: NEON of Armv8.0 and what newer cores add."""

from __future__ import annotations

import logging

from octavo.platforms.cpu.platform import CpuPlatform

log = logging.getLogger("octavo.platforms")


class ArmPlatform(CpuPlatform):
    """The kernels of csrc_neon."""

    name = "arm"
    module = "octavo._neon"

    def refuse_levels(self) -> None:
        """SVE's, where vectors have a length that its kernels were never verified at. Those of SVE with bf16 also where NEON's
        are as long, and expected to be faster (docs/arm.md), unless they were asked for."""
        native = self.native
        bits, sve = 8 * int(native.module.sve_bytes()), native.levels["sve"]
        if bits == 128 and native.available & native.levels["bf16"] and native.isa is None:
            native.bad_levels["svebf16"] = (
                "with vectors of 128 bits bf16's kernels take fewer cycles by the model of Neoverse V2"
            )
        if bits == 0 or native.available & sve:
            return
        reason = f"its kernels are verified for SVE vectors of 128, 256 and 512 bits, and here they have {bits}"
        refused = [level for level, need in native.levels.items() if need & sve]
        native.bad_levels.update(dict.fromkeys(refused, reason))
        log.warning("level %s is not used: %s; the levels below serve instead", ", ".join(refused), reason)
