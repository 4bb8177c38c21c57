"""`Native` of a GPU: arrays live on the device, and go there and back by copies in its queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.gpu.module import Arena, flat_bytes
from octavo.platforms.recorded.native import Native


@dataclass(frozen=True)
class OnDevice:
    """Bytes that lie on the device already; `held` keeps them there."""

    address: int
    num_bytes: int
    held: Any


@dataclass
class GpuNative(Native):
    """See `Native`; `module` is a GpuModule."""

    def hold(self, array: NDArray[Any] | OnDevice) -> tuple[int, Any]:
        if isinstance(array, OnDevice):
            return array.address, array
        data = flat_bytes(array)
        arena = Arena(self.module.device, data.size)
        if data.size:
            self.module.device.write(arena.address, data)
        return arena.address, arena

    def store(self, arena: Any, offset_bytes: int, array: NDArray[Any]) -> None:
        self.module.device.write(arena.address + offset_bytes, flat_bytes(array))

    def fetch(self, arena: Any, offset_bytes: int, num_bytes: int) -> NDArray[np.uint8]:
        out = np.empty(num_bytes, np.uint8)
        if num_bytes:
            self.module.device.read(arena.address + offset_bytes, out)
        return out
