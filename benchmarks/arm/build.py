"""The kernels of csrc_neon, cross-built with the flags of CMakeLists.txt, in a program that calls one between two marks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT

HOME = ROOT / "build/arm64/counts"
HERE = Path(__file__).resolve().parent
COMPILER = "aarch64-linux-gnu-g++"
NEEDED = {COMPILER: "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static", "cmake": "cmake"}


def missing(also: dict[str, str] | None = None) -> str:
    """What to install before anything can be counted ('' = nothing)."""
    absent = [package for tool, package in (NEEDED | (also or {})).items() if shutil.which(tool) is None]
    return f"apt install {' '.join(absent)}" if absent else ""


def kernels() -> list[Path]:
    """Object files of the kernels, built where they are not up to date."""
    pybind11 = run([sys.executable, "-m", "pybind11", "--cmakedir"]).strip()
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    run([
        "cmake", "-S", str(ROOT), "-B", str(HOME), f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/ci/aarch64.cmake",
        *(["-G", "Ninja"] if shutil.which("ninja") else []), *launcher,
        # The kernels know nothing of Python: any headers do to configure.
        f"-DPython_EXECUTABLE={sys.executable}", f"-DPython_INCLUDE_DIR={sysconfig.get_path('include')}",
        "-DPYTHON_MODULE_EXTENSION=.so", "-DPYBIND11_USE_CROSSCOMPILING=ON", f"-Dpybind11_DIR={pybind11}",
    ])  # fmt: skip
    run(["cmake", "--build", str(HOME), "--target", "_neon_kernels"])
    return sorted(HOME.rglob("_neon_kernels.dir/**/*.o"))


def driver(objects: Sequence[Path]) -> Path:
    """The program that calls any kernel (driver.cpp)."""
    program = HOME / "driver"
    include = [f"-I{ROOT}/csrc_common", f"-I{ROOT}/csrc_neon"]
    sources = [str(HERE / "driver.cpp"), str(ROOT / "csrc_neon/registry.cpp")]
    run([COMPILER, "-std=c++17", "-O2", "-static", *include, *sources, *map(str, objects), "-o", str(program)])
    return program


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: status {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout
