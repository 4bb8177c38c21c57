"""Device memory in the queue's order: what is given back is used again once the queue is done with it.

Small blocks are kept for the next that asks for their size, so that what lives for a step costs no call of a driver. Giving back
never waits, calls no driver and raises nothing of its own, so that finalizers may do it in any thread and amid a recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

ALIGNMENT = 256  # of all blocks, in bytes
SMALL_BYTES = 1 << 16  # blocks up to this size are kept
MAX_KEPT = 64  # of one size


class DeviceMemory:
    """All blocks of a device. `alloc` and `free` are the driver's."""

    def __init__(self, alloc: Callable[[int], int], free: Callable[[int], None]) -> None:
        self._alloc = alloc
        self._free = free
        self._sizes: dict[int, int] = {}  # of blocks that are lent
        self._dropped: deque[tuple[int, int]] = deque()  # given back, while the queue may still use them
        self._kept: dict[int, list[int]] = {}  # by size

    def take(self, num_bytes: int) -> int:
        """The address of a block. Fails as the driver's `alloc` does."""
        size = rounded(num_bytes)
        kept = self._kept.get(size)
        address = kept.pop() if kept else self._alloc(size)
        self._sizes[address] = size
        return address

    def give(self, address: int) -> bool:
        """Whether it was lent; it is usable again after `settle`."""
        size = self._sizes.pop(address, None)
        if size is not None:
            self._dropped.append((address, size))
        return size is not None

    def settle(self) -> None:
        """The queue is empty: what was given back is kept or goes back to the driver."""
        while self._dropped:
            address, size = self._dropped.popleft()
            kept = self._kept.setdefault(size, []) if size <= SMALL_BYTES else None
            if kept is not None and len(kept) < MAX_KEPT:
                kept.append(address)
            else:
                self._free(address)

    def trim(self) -> None:
        """Gives kept blocks back to the driver."""
        for kept in self._kept.values():
            while kept:
                self._free(kept.pop())

    def addresses(self) -> list[int]:
        """Every block that the driver lent, whoever has it."""
        return [
            *self._sizes,
            *(address for address, _ in self._dropped),
            *(a for kept in self._kept.values() for a in kept),
        ]


def rounded(num_bytes: int) -> int:
    """Small sizes to powers of two, so that they meet again; others to whole alignments."""
    if num_bytes <= SMALL_BYTES:
        return max(ALIGNMENT, 1 << (num_bytes - 1).bit_length()) if num_bytes > 0 else ALIGNMENT
    return num_bytes + -num_bytes % ALIGNMENT
