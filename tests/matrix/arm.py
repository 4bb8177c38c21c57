"""Arm cells on another machine: the module cross-built, Python and numpy of an arm64 Debian root, run by qemu.

A cell runs on a processor that has its level's features and no more, where qemu has one, so an instruction from beyond
them is a crash. Kernels that fit any length of a vector get a cell for each length; one of them runs all cases, the others, which
repeat it, some (`cases.repeated`). Everything is kept in build/arm64: the root and the wheels are made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.arm import HOME, ROOT, cmake_options, inside, install, make_root, missing, run

__all__ = ["CELLS", "SELF_TESTS", "make", "missing", "run_cell", "run_kernel_tests", "run_self_test"]


@dataclass(frozen=True)
class ArmCell:
    """A level on one of qemu's processors; `sve_bits`: length of its SVE vectors, as its system must tell (0: has none);
    `repeats`: the cell of the same level that runs all cases, where this one runs some."""

    level: str
    processor: str
    sve_bits: int = 0
    repeats: str = ""


#: cell -> what it is. A64FX has SVE and nothing that came after: no dot products of NEON's, no i8mm, no bf16. No kernel was
#: verified for vectors of 1024 bits.
CELLS = {
    "neon": ArmCell("neon", "cortex-a72"),
    "dotprod": ArmCell("dotprod", "neoverse-n1"),
    "sve128": ArmCell("sve", "a64fx,sve256=off,sve512=off", 128, "sve256"),
    "sve256": ArmCell("sve", "a64fx,sve512=off", 256),
    "sve512": ArmCell("sve", "a64fx", 512, "sve256"),
    "sve1024": ArmCell("neon", "max,sve1024=on,sve-default-vector-length=128", 1024, "neon"),
    "i8mm": ArmCell("i8mm", "max,sve=off"),
    "bf16": ArmCell("bf16", "max,sve=off"),
    "svebf16-128": ArmCell("svebf16", "max,sve128=on", 128),
    "svebf16-256": ArmCell("svebf16", "max,sve256=on", 256, "svebf16-128"),
    "svebf16-512": ArmCell("svebf16", "max,sve512=on", 512, "svebf16-128"),
    "bf16fast": ArmCell("bf16fast", "max,sve=off"),
}
PACKAGES = ["numpy", "msgspec", "blake3", "safetensors", "pytest", "hypothesis"]
TIMEOUT_S = 1200
KERNELS_TIMEOUT_S = 3600


def make() -> str:
    """Builds the root and the module; '' or why not."""
    try:
        version = make_root()
        site, listed = HOME / "root/opt/site", " ".join(PACKAGES)
        stamp = site / "packages.txt"
        if not stamp.exists() or stamp.read_text() != listed:
            install(version, site, PACKAGES)
            stamp.write_text(listed)
        _module(version)
    except subprocess.CalledProcessError as error:
        return f"{error}: {error.output}"
    return ""


def run_cell(name: str, out: Path, repeats: Path | None = None) -> dict[str, Any]:
    """The row of one cell, by the same code that runs native cells; {"error": ...} if it crashed, hung, or had other vectors.
    `repeats`: the row of the cell that this one repeats, for some cases instead of all."""
    out.unlink(missing_ok=True)
    cell = CELLS[name]
    environment = {**_paths(), "QEMU_CPU": cell.processor}
    place = lambda file: str(Path("/opt/octavo") / file.relative_to(ROOT))  # noqa: E731
    command = ["/usr/bin/python3", "-m", "tests.matrix.worker", "cell", f"arm-{cell.level}", place(out)]
    command += [] if repeats is None else ["--repeats", place(repeats)]
    try:
        done = subprocess.run(inside(command, environment), capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"still running after {TIMEOUT_S} s"}
    if done.returncode or not out.exists():
        return {"error": f"ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}"}
    found: dict[str, Any] = json.loads(out.read_text())
    why = wrong_chip(cell, found)
    return {"error": why} if why else found


def wrong_chip(cell: ArmCell, found: dict[str, Any]) -> str:
    """'' where a cell's processor is what it should be, and SVE used, or passed over with one warning, as its length asks."""
    if found["sve_bits"] != cell.sve_bits:
        return f"SVE vectors of {found['sve_bits']} bits where {cell.sve_bits} are due"
    is_used, is_verified = "sve" in found["levels"], cell.sve_bits in (128, 256, 512)
    if is_used != is_verified:
        return f"with SVE vectors of {cell.sve_bits} bits levels {', '.join(found['levels'])} run"
    is_warned = cell.sve_bits > 0 and not is_verified
    if len(found["warnings"]) != is_warned:
        return f"warnings where {int(is_warned)} is due: {found['warnings']}"
    return ""


def run_kernel_tests(name: str, out: Path) -> None:
    """tests/kernels with the cell's level in their name on its processor, to a JUnit file; in the first cell all."""
    out.unlink(missing_ok=True)
    cell = CELLS[name]
    environment = {**_paths(), "QEMU_CPU": cell.processor}
    chosen = [] if name == next(iter(CELLS)) else ["-k", cell.level]  # a processor skips the levels that it lacks
    command = ["/usr/bin/python3", "-m", "pytest", "/opt/octavo/tests/kernels", "-q", "-p", "no:cacheprovider", *chosen]
    command += ["--ignore=/opt/octavo/tests/kernels/test_vec.py", f"--junitxml=/opt/octavo/{out.relative_to(ROOT)}"]
    subprocess.run(inside(command, environment), capture_output=True, timeout=KERNELS_TIMEOUT_S)


#: tests that plant faults in kernels -> the cell that they run in: a level with wrong bits is refused, and answers stay right
SELF_TESTS = {"test_selftest": "sve128", "test_fast_numerics": "bf16fast"}


def run_self_test(file: str, out: Path) -> None:
    """One of SELF_TESTS, to a JUnit file."""
    out.unlink(missing_ok=True)
    environment = {**_paths(), "QEMU_CPU": CELLS[SELF_TESTS[file]].processor}
    command = ["/usr/bin/python3", "-m", "pytest", f"/opt/octavo/tests/platforms/recorded/{file}.py", "-q"]
    command += ["-p", "no:cacheprovider", "-k", "not under_50_ms and not golden_bits_are"]
    command += [f"--junitxml=/opt/octavo/{out.relative_to(ROOT)}"]
    subprocess.run(inside(command, environment), capture_output=True, timeout=TIMEOUT_S)


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": "/opt/octavo/src:/opt/octavo:/opt/site"}


def _module(version: str) -> None:
    """_neon, cross-built, beside the package's sources."""
    build = HOME / "build"
    pybind11 = run([sys.executable, "-m", "pybind11", "--cmakedir"]).strip()
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), *cmake_options(version), f"-Dpybind11_DIR={pybind11}"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DOCTAVO_WERROR=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    run([*configure, *(["-G", "Ninja"] if shutil.which("ninja") else [])])
    run(["cmake", "--build", str(build), "-j", str(os.cpu_count())])
    for file in build.glob("_neon.*.so"):
        fresh = shutil.copy(file, ROOT / "src/octavo" / f"{file.name}.new")
        os.replace(fresh, ROOT / "src/octavo" / file.name)  # a module written over crashes whoever runs it
