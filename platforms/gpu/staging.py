"""Small host arrays on their way to the device: copied into pinned memory, from where the driver takes them without waiting.

From pageable memory HIP copies only when its queue is empty, which would cost every step a wait.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

STAGING_BYTES = 1 << 20
MAX_STAGED = STAGING_BYTES // 8  # larger arrays go by themselves: they come with weights, not with steps


class Staging:
    """A pinned buffer, filled from its start after each time that the queue was empty. `wait` empties the queue."""

    def __init__(self, buffer: NDArray[np.uint8], wait: Callable[[], None]) -> None:
        self._buffer = buffer
        self._address = buffer.ctypes.data
        self._wait = wait
        self._used = 0

    def put(self, data: NDArray[np.uint8]) -> int:
        """The address of a copy of `data`, good until the queue is empty next."""
        if self._used + data.size > STAGING_BYTES:
            self._wait()
            self._used = 0
        at = self._used
        self._buffer[at : at + data.size] = data
        self._used = at + data.size + -data.size % 64
        return self._address + at

    def settle(self) -> None:
        """The queue is empty."""
        self._used = 0
