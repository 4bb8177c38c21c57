"""Compiles the fake drivers, once per run of the tests."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SONAMES = {"cuda": "libcuda.so.1", "rocm": "libamdhip64.so"}
_SOURCES = {"cuda": "fake_cuda.c", "rocm": "fake_hip.c"}


@functools.cache
def libraries() -> Path:
    """Holds both libraries under the names that the bindings look for. Skips where there is no C compiler."""
    if made := os.environ.get("DRIVER_TESTS_LIBRARIES"):  # by the process that runs the tests over a real binding
        return Path(made)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler for the fake drivers")
    folder = Path(tempfile.mkdtemp(prefix="octavo-fakes-"))
    here = Path(__file__).parent
    for kind, name in SONAMES.items():
        flags = ["-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run([compiler, *flags, str(here / _SOURCES[kind]), "-ldl"], check=True, timeout=120)
    return folder


class FakeDriver:
    """Plans and counts of a fake driver's library. `library`: already opened, by the binding or by us."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def device(
        self,
        index: int,
        name: str,
        arch: str,
        num_bytes: int = 1 << 20,
        *,
        wave: int = 32,
        units: int = 8,
        shared: int = 65536,
        is_integrated: bool = False,
    ) -> None:
        """`arch`: gfx942:sramecc+ or sm_90."""
        number = arch.removeprefix("sm_")
        major, minor = (int(number[:-1]), int(number[-1])) if number != arch else (0, 0)
        sizes = ctypes.c_size_t(shared), ctypes.c_size_t(num_bytes)
        self.library.fake_device(
            index, name.encode(), arch.encode(), major, minor, wave, units, int(is_integrated), *sizes
        )

    def devices(self, count: int) -> None:
        """How many the driver shows."""
        self.library.fake_devices(count)

    def plan(self, call: str, code: int) -> None:
        """The next such call fails."""
        self.library.fake_plan(call.encode(), code)

    def calls(self, call: str) -> int:
        """How often it was called."""
        return int(self.library.fake_calls(call.encode()))

    def live(self) -> dict[str, int]:
        """What was taken and not given back."""
        names = ("memory", "pinned", "graphs", "modules", "others")
        return {name: int(self.library.fake_live(at)) for at, name in enumerate(names)}

    def version(self, number: int) -> None:
        """What the driver says of itself; 0: its own."""
        self.library.fake_version(number)
