"""Host memory that a device copies from and to without a detour. An array of it may outlive its device."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class PinnedPool:
    """Arrays over pinned memory, given back when nobody refers to them.

    While the device is open a dropped array is only noted, since the queue may still copy from it and the collector may run in
    any thread and amid a recording; `collect` gives it back. `enter` makes the device current in the calling thread.
    """

    def __init__(self, enter: Callable[[], None], alloc: Callable[[int], int], free: Callable[[int], None]) -> None:
        self._enter = enter
        self._alloc = alloc
        self._free = free
        self._dropped: deque[int] = deque()
        self._ends: dict[int, int] = {}  # of what is lent, by its start
        self._is_open = True

    def array(self, num_bytes: int) -> NDArray[np.uint8]:
        """So many bytes, with any content."""
        size = max(1, num_bytes)
        address = self._alloc(size)
        self._ends[address] = address + size
        block = (ctypes.c_uint8 * size).from_address(address)
        weakref.finalize(block, self._drop, address).atexit = False  # a process that ends gives all back
        return np.ctypeslib.as_array(block)[:num_bytes]

    def has(self, array: NDArray[np.uint8]) -> bool:
        """Whether an array lies in this memory."""
        start = array.ctypes.data
        return any(low <= start < high for low, high in self._ends.items())

    def _drop(self, address: int) -> None:
        self._ends.pop(address, None)
        self._dropped.append(address)
        if not self._is_open:
            with contextlib.suppress(Exception):
                self._enter()
                self.collect()

    def collect(self) -> None:
        """Gives back what was dropped; the queue must be empty and the device current."""
        while self._dropped:
            self._free(self._dropped.popleft())

    def close(self) -> None:
        """The device is about to close: from now on dropped arrays are given back at once."""
        self._is_open = False
        self.collect()
