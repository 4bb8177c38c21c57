"""The stand-in for a GPU: `Device` over the host's memory, kernels run by fibers (csrc_common/gpu/host.h).

Memory of one allocation is bounded by canaries, which `free` and `check` look at.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ci.gpu import Target, build, host_library
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.device import DeviceFacts

GUARD = 256
CANARY = 0xA5
POISON = 0xFF  # NaN as float32, -1 as int32


@dataclass
class HostCode:
    """Kernels are known by their names."""

    names: set[str] = field(default_factory=set)

    def function(self, name: str, shared_bytes: int = 0) -> str:
        del shared_bytes
        return name


@dataclass
class HostGraph:
    calls: list[Callable[[], None]]

    def launch(self) -> None:
        for call in self.calls:
            call()

    def close(self) -> None:
        self.calls.clear()


@dataclass
class HostDevice:
    """Implements `octavo.platforms.gpu.device.Device`. `launched` counts the blocks of each kernel."""

    wave: int = 64
    num_units: int = 4
    launched: dict[str, int] = field(default_factory=dict)
    _memory: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    _captured: list[Callable[[], None]] | None = None
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self.facts = DeviceFacts(
            "host", 0, "host", f"wave{self.wave}", self.wave, self.num_units, 65536, 1 << 34, "", ""
        )
        self._library = ctypes.CDLL(str(host_library(self.wave)))

    def alloc(self, num_bytes: int) -> int:
        size = max(num_bytes, 1)
        block = np.full(size + 3 * GUARD, CANARY, np.uint8)
        address = (block.ctypes.data + GUARD + GUARD - 1) // GUARD * GUARD
        start = address - block.ctypes.data
        block[start : start + size] = POISON
        self._memory[address] = block[: start + size + GUARD]
        return address

    def free(self, address: int) -> None:
        if self._is_closed:  # it has given all back
            return
        self._check(address)
        del self._memory[address]

    def check(self) -> None:
        for address in self._memory:
            self._check(address)

    def _check(self, address: int) -> None:
        block = self._memory[address]
        start = address - block.ctypes.data
        if (block[:start] != CANARY).any() or (block[-GUARD:] != CANARY).any():
            raise PlatformError(f"a kernel wrote beyond memory of {block.size - start - GUARD} bytes")

    def _bytes(self, address: int, num_bytes: int) -> NDArray[np.uint8]:
        for start, block in self._memory.items():
            size = block.size - (start - block.ctypes.data) - GUARD
            if start <= address and address + num_bytes <= start + size:
                offset = address - block.ctypes.data
                return block[offset : offset + num_bytes]
        raise PlatformError(f"{num_bytes} bytes at {address:#x} are no memory of this device")

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        return np.zeros(num_bytes, np.uint8)

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        self._bytes(address, data.size)[:] = data

    def read(self, address: int, out: NDArray[np.uint8]) -> None:
        out[:] = self._bytes(address, out.size)

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self._do(lambda: ctypes.memmove(target, source, num_bytes) and None)

    def zero(self, address: int, num_bytes: int) -> None:
        self._do(lambda: self._bytes(address, num_bytes).fill(0))

    def load(self, code: bytes) -> HostCode:
        del code
        return HostCode()

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        del shared_bytes  # no kernel on the host asks for any

        def run() -> None:
            self.launched[function] = self.launched.get(function, 0) + grid[0] * grid[1] * grid[2]
            failed = self._library.octavo_gpu_launch(function.encode(), *grid, threads, arguments)
            assert not failed, f"{function}: {('', 'no such kernel', f'has not {threads} threads')[failed]}"

        self._do(run)

    def capture(self, launches: Callable[[], None]) -> HostGraph:
        self._captured = []
        try:
            launches()
            return HostGraph(self._captured)
        finally:
            self._captured = None

    def _do(self, call: Callable[[], None]) -> None:
        if self._captured is None:
            call()
        else:
            self._captured.append(call)

    def synchronize(self) -> None:
        """All is done at once."""

    def seconds(self, work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def memory(self) -> tuple[int, int]:
        return 1 << 33, 1 << 34

    def close(self) -> None:
        self._memory.clear()
        self._is_closed = True


@cache
def folder(wave: int) -> Path:
    """Its table of kernels, built if need be."""
    made = build(Target("host", f"wave{wave}"))
    (made / "host").touch()
    return made
