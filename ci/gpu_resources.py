"""What GPU kernels take of their chip: registers, shared memory, scratch and spills, read from what compilers left.

AMD: the notes of the code object (llvm-readelf). NVIDIA: what ptxas said (`<unit>.log`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import Any

from ci.gpu import Target

#: kernels that may use scratch memory: run once, while weights are loaded
COLD = ("pack_",)
#: kernels of gfx9 that must let so many waves of a SIMD take turns: what they do is wait for memory
LEAST_WAVES = {("paged_attention_", "__mmafast"): 4}


@dataclass(frozen=True)
class Resources:
    """Of one kernel. `waves`: that a SIMD (NVIDIA: a multiprocessor) holds at a time, as far as registers allow."""

    kernel: str
    registers: int
    shared_bytes: int
    scratch_bytes: int
    spills: int
    waves: int

    @property
    def complaint(self) -> str:
        """What must not be in a kernel that runs in every step ('' = nothing)."""
        if self.kernel.startswith(COLD):
            return ""
        if self.spills:
            return f"{self.kernel} spills {self.spills} registers"
        return f"{self.kernel} keeps {self.scratch_bytes} bytes of scratch memory" if self.scratch_bytes else ""


def crowded(kernel: Resources, arch: str) -> str:
    """'' or what a kernel takes too much of, though it runs."""
    for ends, waves in LEAST_WAVES.items():
        is_meant = arch.startswith("gfx9") and kernel.kernel.startswith(ends[0]) and kernel.kernel.endswith(ends[1])
        if is_meant and kernel.waves < waves:
            return (
                f"{kernel.kernel} takes {kernel.registers} registers: {kernel.waves} waves of a SIMD instead of {waves}"
            )
    return ""


def reader() -> str | None:
    """The llvm-readelf at hand."""
    return next(
        (found for v in (22, 23, 24) if (found := shutil.which(f"llvm-readelf-{v}"))), shutil.which("llvm-readelf")
    )


def resources(target: Target) -> list[Resources]:
    """Of every kernel that was built for a target."""
    made: list[Resources] = []
    for code in sorted(target.folder.glob("*.co")):
        if target.kind == "rocm":
            notes = subprocess.run([str(reader()), "--notes", str(code)], capture_output=True, text=True, check=True)
            made += amd(notes.stdout, target.arch)
        else:
            made += nvidia(code.with_suffix(".log").read_text())
    at_launch = {f"{row['op']}__{row['level']}": row["shared_bytes"] for row in _rows_of_triton(target)}
    return [replace(kernel, shared_bytes=kernel.shared_bytes + at_launch.get(kernel.kernel, 0)) for kernel in made]


def _rows_of_triton(target: Target) -> list[dict[str, Any]]:
    """Kernels that ask for shared memory when they are launched, and so name none in their code."""
    made = target.folder / "triton.json"
    return list(json.loads(made.read_text())) if made.exists() else []


def amd(notes: str, arch: str) -> list[Resources]:
    """From the notes of a code object, as llvm-readelf prints them."""
    made = []
    for part in re.split(r"\n  - ", notes.partition("amdhsa.kernels:")[2]):
        fields = dict(re.findall(r"^\s*\.(\w+):\s+(\S+)$", part, re.MULTILINE))
        if "vgpr_count" not in fields:
            continue
        number = {name: int(value) for name, value in fields.items() if value.isdigit()}
        registers = number["vgpr_count"]  # gfx90a and later count those of the matrix units among them
        made.append(
            Resources(
                fields["name"], registers, number["group_segment_fixed_size"], number["private_segment_fixed_size"],
                number["vgpr_spill_count"], _waves(registers, arch),
            )
        )  # fmt: skip
    return made


def _waves(registers: int, arch: str) -> int:
    """CDNA: 512 registers a lane in steps of 8, 8 waves; RDNA 3 and 4: 1,536 in steps of 24, 16 waves."""
    all_of_them, step, most = (512, 8, 8) if arch.startswith("gfx9") else (1536, 24, 16)
    return min(most, all_of_them // (-(-max(registers, 1) // step) * step))


def nvidia(log: str) -> list[Resources]:
    """From what `ptxas -v` said."""
    made = []
    for name, part in re.findall(
        r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", log, re.DOTALL
    ):
        used = re.search(r"Used (\d+) registers", part)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        shared = re.search(r"(\d+) bytes smem", part)
        if used is None or stack is None:
            continue
        registers = int(used[1])
        waves = min(64, 65536 // (32 * -(-registers // 8) * 8))
        spills = (int(stack[2]) + int(stack[3])) // 4
        made.append(Resources(name, registers, int(shared[1]) if shared else 0, int(stack[1]), spills, waves))
    return made
