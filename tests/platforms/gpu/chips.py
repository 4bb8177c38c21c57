"""Devices as their drivers answer for them: name, arch with its features, units, memory, whether they share the processor's."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.platforms.gpu.device import DeviceFacts

GIB = 1 << 30


@dataclass(frozen=True)
class Chip:
    """One device's answers, and what Octavo makes of it: with code objects for the families, float8 and MX formats."""

    kind: str
    name: str
    arch: str
    wave: int
    units: int
    shared: int
    memory_gib: int
    is_integrated: bool
    target: str  # '' where no code object fits
    float8: str
    has_mx: bool

    def facts(self, index: int = 0) -> DeviceFacts:
        return DeviceFacts(
            self.kind, index, self.name, self.arch.partition(":")[0], self.wave, self.units, self.shared,
            self.memory_gib * GIB, "driver 1.0", "binding 1.0", self.is_integrated,
        )  # fmt: skip


TARGETS = {
    "rocm": ("gfx11-generic", "gfx12-generic", "gfx9-4-generic", "gfx90a", "gfx950"),
    "cuda": ("sm_100", "sm_80", "sm_86", "sm_90a"),
}
CHIPS = {
    "MI355X": Chip(
        "rocm", "AMD Instinct MI355X", "gfx950:sramecc+:xnack-", 64, 256, 163840, 288, False, "gfx950", "OCP", True
    ),
    "MI300X": Chip(
        "rocm",
        "AMD Instinct MI300X",
        "gfx942:sramecc+:xnack-",
        64,
        304,
        65536,
        192,
        False,
        "gfx9-4-generic",
        "FNUZ",
        False,
    ),
    "MI210": Chip(
        "rocm", "AMD Instinct MI210", "gfx90a:sramecc+:xnack-", 64, 104, 65536, 64, False, "gfx90a", "none", False
    ),
    "W7900": Chip("rocm", "AMD Radeon PRO W7900", "gfx1100", 32, 48, 65536, 45, False, "gfx11-generic", "none", False),
    "RX 9070": Chip("rocm", "AMD Radeon RX 9070", "gfx1201", 32, 28, 65536, 16, False, "gfx12-generic", "OCP", False),
    "Strix Halo": Chip("rocm", "AMD Radeon 8060S", "gfx1151", 32, 20, 65536, 96, True, "gfx11-generic", "none", False),
    "RX 6800": Chip("rocm", "AMD Radeon RX 6800", "gfx1030", 32, 30, 65536, 16, False, "", "none", False),
    "H200": Chip("cuda", "NVIDIA H200", "sm_90", 32, 132, 49152, 140, False, "sm_90a", "OCP", False),
    "A100": Chip("cuda", "NVIDIA A100-SXM4-80GB", "sm_80", 32, 108, 49152, 79, False, "sm_80", "none", False),
    "B200": Chip("cuda", "NVIDIA B200", "sm_100", 32, 148, 49152, 178, False, "sm_100", "OCP", True),
    "RTX 4090": Chip("cuda", "NVIDIA GeForce RTX 4090", "sm_89", 32, 128, 49152, 24, False, "sm_86", "OCP", False),
    "GTX 1080": Chip("cuda", "NVIDIA GeForce GTX 1080", "sm_61", 32, 20, 49152, 8, False, "", "none", False),
}
