"""An AMD GPU whose machine code runs on the host: `Device` over an emulator of gfx942 and gfx950 code objects.

The emulator is no part of this repository: the variables AMD_EMULATOR (its Python file) and TINYGRAD (a checkout of
github.com/tinygrad/tinygrad, whose instruction semantics it uses) say where they are. It checks the bounds of every access and
reports races in shared memory; `stats` keeps what each launch executed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.platforms.gpu.host_device import POISON, HostCode, HostGraph

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.device import DeviceFacts

ARCHS = ("gfx942", "gfx950")
UNITS = {"gfx942": 304, "gfx950": 256}


def missing() -> str:
    """Why there is no emulator here ('' = there is one)."""
    for name in ("AMD_EMULATOR", "TINYGRAD"):
        path = os.environ.get(name, "")
        if not path:
            return f"{name} is not set"
        if not Path(path).exists():
            return f"{name}={path} does not exist"
    return ""


def _emulator(arch: str) -> Any:
    path = Path(os.environ["AMD_EMULATOR"])
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[path.stem].Emulator(os.environ["TINYGRAD"], arch)


@dataclass
class EmulatedDevice:
    """Implements `octavo.platforms.gpu.device.Device`. `stats`: (kernel, grid, what the emulator counted) of every launch."""

    arch: str
    num_units: int = 0  # fewer than the chip's keep grids small; 0: the chip's
    stats: list[tuple[str, tuple[int, int, int], Any]] = field(default_factory=list)
    _memory: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        units = self.num_units or UNITS[self.arch]
        self.facts = DeviceFacts("rocm", 0, "emulated", self.arch, 64, units, 65536, 1 << 38, "", "")
        self._emulator = _emulator(self.arch)
        self._queue: list[Callable[[], None]] | None = None

    def alloc(self, num_bytes: int) -> int:
        block = np.full(max(num_bytes, 1), POISON, np.uint8)
        address = int(self._emulator.memory.add(block, f"memory of {num_bytes} bytes"))
        self._memory[address] = block
        return address

    def free(self, address: int) -> None:
        self._emulator.memory.drop(address)
        del self._memory[address]

    def _bytes(self, address: int, num_bytes: int) -> NDArray[np.uint8]:
        region = self._emulator.memory._find(address, address + num_bytes)
        if region is None:
            raise PlatformError(f"{num_bytes} bytes at {address:#x} are no memory of this device")
        start = address - region[0]
        found: NDArray[np.uint8] = region[2][start : start + num_bytes]
        return found

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        return np.zeros(num_bytes, np.uint8)

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        self._bytes(address, data.size)[:] = data

    def read(self, address: int, out: NDArray[np.uint8]) -> None:
        out[:] = self._bytes(address, out.size)

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self._do(lambda: self.write(target, self._bytes(source, num_bytes).copy()))

    def zero(self, address: int, num_bytes: int) -> None:
        self._do(lambda: self._bytes(address, num_bytes).fill(0))

    def load(self, code: bytes) -> HostCode:
        return HostCode(set(self._emulator.load(code)))

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        def run() -> None:
            fields = ((field[".offset"], field[".size"]) for field in self._emulator.signature(function))
            given = [arguments[at : at + size] for at, size in fields]
            counted = self._emulator.launch(function, grid, threads, given, shared_bytes)
            self.stats.append((function, grid, counted))

        self._do(run)

    def capture(self, launches: Callable[[], None]) -> HostGraph:
        self._queue = []
        try:
            launches()
            return HostGraph(self._queue)
        finally:
            self._queue = None

    def _do(self, call: Callable[[], None]) -> None:
        if self._queue is None:
            call()
        else:
            self._queue.append(call)

    def synchronize(self) -> None:
        """All is done at once."""

    def seconds(self, work: Callable[[], None]) -> float:
        raise PlatformError("an emulator knows no time")

    def memory(self) -> tuple[int, int]:
        return 1 << 37, 1 << 38

    def close(self) -> None:
        self._memory.clear()
