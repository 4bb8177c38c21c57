"""One GPU as its driver offers it, or what stands in for one in tests: memory, code objects, launches, graphs.

Everything a device does is put in one queue and done in its order; only `read` and `synchronize` wait. Addresses are of device
memory and never read by the host. Failures are PlatformErrors that name the call, the driver's own words and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class DeviceFacts:
    """What the driver says of a device, before any code of ours is loaded."""

    kind: str  # rocm, cuda
    index: int
    name: str  # the vendor's
    arch: str  # as code objects name it: gfx950, sm_90
    wave: int  # threads that run in step
    num_units: int  # compute units or streaming multiprocessors
    shared_bytes: int  # LDS or shared memory of one block, as a kernel may use it without asking
    memory_bytes: int
    driver: str  # version of the driver
    library: str  # version of the binding
    is_integrated: bool = False  # a part of the processor, with its memory


class Graph(Protocol):
    """Launches recorded once, put in the queue by one call."""

    def launch(self) -> None: ...
    def close(self) -> None: ...


class Code(Protocol):
    """A loaded code object."""

    def function(self, name: str, shared_bytes: int = 0) -> Any:
        """What `Device.launch` takes. PlatformError for a kernel that the code object lacks. `shared_bytes`: of shared memory
        that its launches will ask for."""
        ...


class Device(Protocol):
    """An open device. Not for several threads at a time."""

    facts: DeviceFacts

    def alloc(self, num_bytes: int) -> int:
        """The address of so much memory, aligned to 256 bytes, with any content. PlatformError with free and total bytes
        where there is not enough."""
        ...

    def free(self, address: int) -> None:
        """Gives memory back, once what is in the queue is done with it."""
        ...

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Host memory that `write` and `read` are fastest with; lives as long as the array does."""
        ...

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Host bytes to the device. The array may change once this returns, but for pinned memory: once the queue got there."""
        ...

    def read(self, address: int, out: NDArray[np.uint8]) -> None:
        """Device bytes to the host, after all that is in the queue."""
        ...

    def copy(self, target: int, source: int, num_bytes: int) -> None: ...
    def zero(self, address: int, num_bytes: int) -> None: ...

    def load(self, code: bytes) -> Code: ...

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        """Puts `grid` blocks of `threads` in the queue. `arguments`: the kernel's parameters as they lie in memory;
        `shared_bytes`: of shared memory that a block gets beside what the kernel declares."""
        ...

    def capture(self, launches: Callable[[], None]) -> Graph:
        """What `launches` puts in the queue (launches and copies within the device) as a graph, without running it."""
        ...

    def synchronize(self) -> None: ...

    def seconds(self, work: Callable[[], None]) -> float:
        """What the device itself takes for what `work` puts in the queue, by its own clock."""
        ...

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes now."""
        ...

    def close(self) -> None: ...
