"""A recorded model on a GPU: steps go into the device's queue, drawn and picked ids come back; logits only if looked at."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.gpu.logits import DeviceLogits
from octavo.platforms.gpu.native import GpuNative
from octavo.platforms.gpu.sampling import DeviceSampler, HostSampler
from octavo.platforms.recorded.executable import RecordedExecutable
from octavo.platforms.types import SampleBatch, SampleResult

_FIXED = 3


def copy_pages(native: GpuNative, pool: Any, page_bytes: int, pairs: list[tuple[int, int]]) -> None:
    """Copies whole pages of a pool (source, target), in order."""
    flat = np.array([len(pairs), *(page for pair in pairs for page in pair)], np.int32)
    address, held = native.hold(flat)
    program, bands = native.module.Program(), native.table["copy_blocks"].bands
    program.add(bands, (_FIXED, -(-page_bytes // 2048)), {"pairs": address, "page_bytes": page_bytes})
    program.run(None, native.module.Step(0, 0, 0, None, None, None, None, None, None, None, pool.address, []), 0, 1)
    del held  # freed behind the copies


class GpuExecutable(RecordedExecutable):
    """See `RecordedExecutable`."""

    native: GpuNative

    def _look(self) -> None:
        self._sampler = HostSampler()
        self._device_sampler = DeviceSampler(self.native) if "sample" in self.native.table else None

    def _logits(self, num_rows: int) -> NDArray[np.float32]:
        output = self.recorded.output
        if output is None:
            return np.zeros((0, 0), np.float32)
        address, stride, width = self.recorded.output_address, output.stride, output.width

        def fetch() -> NDArray[np.float32]:
            return self._rows(address, num_rows, stride, width).view(np.float32)

        return cast("NDArray[np.float32]", DeviceLogits(address, stride, (num_rows, width), fetch))

    def _picked(self, num_rows: int) -> NDArray[np.int32]:
        assert self.recorded.greedy is not None
        found = self._rows(self.recorded.greedy.address, num_rows, self.recorded.greedy.ids.stride, 1)
        ids: NDArray[np.int32] = found[:, 0].copy()
        return ids

    def _rows(self, address: int, num_rows: int, stride: int, width: int) -> NDArray[np.int32]:
        """Words [num_rows, width] of the arena, rows `stride` apart."""
        start = address - self.recorded.arena.address
        num_bytes = max(0, (num_rows - 1) * stride + width) * 4 if num_rows else 0
        flat = self.native.fetch(self.recorded.arena, start, num_bytes).view(np.int32)
        return np.lib.stride_tricks.as_strided(flat, (num_rows, width), (stride * 4, 4))

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        if self.pool is not None and pairs:
            copy_pages(self.native, self.pool, self.page_bytes, pairs)

    def sample(self, logits: NDArray[np.float32] | DeviceLogits, batch: SampleBatch) -> SampleResult:
        """Of what `head` returned on the device; of a copy of it on the host."""
        if isinstance(logits, DeviceLogits):
            if self._device_sampler is not None:
                return self._device_sampler.sample(logits, batch)
            logits = logits.array
        return self._sampler.sample(logits, batch)
