"""What the name of an arch says: which code objects run on it, which float8 it computes with, whether it has MX formats.

Sources: LLVM's AMDGPU user guide, "Generic processors" (https://llvm.org/docs/AMDGPUUsage.html); NVIDIA's CUDA programming guide,
"Application compatibility", and its table of compute capabilities; the two vendors' tables of matrix instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: LLVM's generic target -> the processors that run its code
GENERIC: dict[str, tuple[str, ...]] = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
#: NVIDIA's chips for embedded systems run only code that was built for them
_EMBEDDED = ("sm_53", "sm_62", "sm_72", "sm_87", "sm_101", "sm_110")
_SM = re.compile(r"sm_(\d+)(\d)([af]?)")


def fitting(arch: str, targets: Iterable[str]) -> str:
    """The target whose code suits a chip best, '' where none runs on it: built for the chip itself, else for its family."""
    ranked = [(rank, target) for target in targets if (rank := _rank(arch, target)) is not None]
    return max(ranked)[1] if ranked else ""


def _rank(arch: str, target: str) -> int | None:
    """How well a target suits, None if it does not run. For an exact match a large number; then the nearest older chip."""
    ours, theirs = _SM.fullmatch(arch), _SM.fullmatch(target)
    if ours is None or theirs is None:
        return 1000 if arch == target else 0 if arch in GENERIC.get(target, ()) else None
    major, minor, wanted = int(ours[1]), int(ours[2]), int(theirs[2])
    is_same = (ours[1], ours[2]) == (theirs[1], theirs[2])
    if theirs[3] == "a":  # for this chip only
        return 1002 if is_same else None
    if int(theirs[1]) != major or wanted > minor:
        return None
    if not is_same and (arch in _EMBEDDED or target.rstrip("f") in _EMBEDDED):
        return None
    return (1000 if is_same else wanted) + (1 if theirs[3] == "f" else 0)


def float8(arch: str) -> str:
    """The dialect of 8-bit floats that the chip multiplies: OCP, FNUZ (AMD's earlier one, of half the range), or none."""
    sm = _SM.fullmatch(arch)
    if sm is not None:
        return "OCP" if (int(sm[1]), int(sm[2])) >= (8, 9) else "none"
    if arch == "gfx942":
        return "FNUZ"
    return "OCP" if arch == "gfx950" or re.fullmatch(r"gfx12\d\d", arch) else "none"


def has_mx(arch: str) -> bool:
    """Whether the chip multiplies the OCP's microscaling formats (MXFP8, MXFP6, MXFP4) without unpacking them."""
    sm = _SM.fullmatch(arch)
    return int(sm[1]) >= 10 if sm is not None else arch == "gfx950" or arch.startswith("gfx125")


def is_older(arch: str, targets: Iterable[str]) -> bool:
    """Whether an NVIDIA chip is older than every target."""
    ours = _SM.fullmatch(arch)
    theirs = [found for target in targets if (found := _SM.fullmatch(target))]
    return bool(ours and theirs) and all((int(t[1]), int(t[2])) > (int(ours[1]), int(ours[2])) for t in theirs if ours)
