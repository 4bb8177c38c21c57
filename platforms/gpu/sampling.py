"""Draws tokens: where logits lie on the device, there; from logits on the host by native kernels where there are some, else by
the reference. Same results wherever it runs (docs/numerics.md, "Sampling")."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.logits import DeviceLogits
from octavo.platforms.gpu.native import GpuNative
from octavo.platforms.gpu.rows import STEP_BYTES
from octavo.platforms.limits import read_limits
from octavo.platforms.types import SampleBatch, SampleResult

_ALIGN = 64
_LOOK, _FINISH = 0, 2  # stages of csrc_common/contract/sample.h
LEAST_OF_PART = 4096  # tokens: two rounds of a block
#: what SampleBatch's arrays are to the kernel (csrc_common/contract/sample.h)
_INPUTS: dict[str, Any] = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p", "presence", "frequency", "repetition"), np.float32),
    **dict.fromkeys(("top_k", "num_logprobs", "mask_row"), np.int32),
    "seed": np.uint64,
    "choice": np.uint32,
    "position": np.int64,
    "bias_values": np.float32,
    "masks": np.uint32,
    **dict.fromkeys(("count_start", "count_ids", "count_output", "bias_start", "bias_ids"), np.int32),
    **dict.fromkeys(("banned_start", "banned_ids"), np.int32),
}


class HostSampler:
    """Draws on the host."""

    def __init__(self) -> None:
        self._native: Any = None
        try:
            from octavo.platforms.cpu.module import load

            module = load()
        except PlatformError:
            return
        from octavo.platforms.recorded.native import Native
        from octavo.platforms.recorded.sampling import NativeSampler

        self._native = NativeSampler(Native(module), module.Team(read_limits().num_compute_threads, 0))

    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult:
        if self._native is not None:
            result: SampleResult = self._native.sample(logits, rows)
            return result
        from octavo.platforms.reference.sample import sample

        return sample(logits, rows)


class DeviceSampler:
    """Draws where the logits lie: parameters go there in one copy, results come back in one. For one thread at a time."""

    def __init__(self, native: GpuNative) -> None:
        self.native = native
        self._address = 0
        self._bytes = 0
        self._free: Any = None

    def sample(self, logits: DeviceLogits, batch: SampleBatch) -> SampleResult:
        rows, vocab = logits.shape
        most = max([0, *batch.num_logprobs.tolist()])
        layout = _Layout()
        inputs = {name: np.ascontiguousarray(getattr(batch, name), kind) for name, kind in _INPUTS.items()}
        places = {name: layout.take(array.nbytes) for name, array in inputs.items()}
        results_at = layout.size
        results = {
            "ids": ((rows,), np.int32), "logprobs": ((rows,), np.float32), "ranks": ((rows,), np.int32),
            "best_ids": ((rows, most), np.int32), "best_logprobs": ((rows, most), np.float32),
        }  # fmt: skip
        for name, (shape, _) in results.items():
            places[name] = layout.take(4 * int(np.prod(shape)))
        results_end = layout.size
        entries = len(batch.banned_ids) + len(batch.bias_ids) + len(batch.count_ids)
        parts = _parts(rows, vocab, self.native.module.device.facts.num_units)
        places["work"] = layout.take(4 * entries + 8 * rows * (most + parts))
        base = self._room(layout.size)
        fields = {name: base + at for name, at in places.items()} | {
            "logits": logits.address, "ld": logits.stride, "vocab": vocab, "num_rows": rows, "max_logprobs": most,
            "mask_words": inputs["masks"].shape[1], "raw_logprobs": int(batch.raw_logprobs),
            "work_bytes": 8 * parts, "stage": _FINISH,
        }  # fmt: skip
        if rows:
            packed = np.zeros(results_at, np.uint8)
            for name, array in inputs.items():
                packed[places[name] : places[name] + array.nbytes] = array.reshape(-1).view(np.uint8)
            self.native.module.device.write(base, packed)
            if parts:
                self._launch(fields | {"stage": _LOOK}, (rows, 1, parts))
            self._launch(fields, (rows, 1, 1))
        found = np.empty(results_end - results_at, np.uint8)
        if rows:
            self.native.module.device.read(base + results_at, found)
        arrays = {}
        for name, (shape, kind) in results.items():
            at, size = places[name] - results_at, 4 * int(np.prod(shape))
            arrays[name] = found[at : at + size].view(kind).reshape(shape)
        return SampleResult(**arrays)

    def sample_host(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        """Of logits on the host, which go to the device first."""
        return self.sample(self.upload(logits), batch)

    def upload(self, logits: NDArray[np.float32]) -> DeviceLogits:
        """Host logits on the device."""
        array = np.ascontiguousarray(logits, np.float32)
        address, held = self.native.hold(array)

        def fetch() -> NDArray[np.float32]:
            return self.native.fetch(held, 0, array.nbytes).view(np.float32).reshape(array.shape)

        return DeviceLogits(address, array.shape[1], array.shape, fetch)

    def _launch(self, fields: dict[str, Any], grid: tuple[int, int, int]) -> None:
        module = self.native.module
        row = module.rows[self.native.table["sample"].many]
        arguments = bytearray(STEP_BYTES + row.args_bytes)
        row.pack(arguments, fields)
        module.device.launch(module.function(row.name), grid, row.threads, bytes(arguments))

    def _room(self, num_bytes: int) -> int:
        """The address of so much memory, with any content; the same as long as it is large enough."""
        if num_bytes > self._bytes:
            device = self.native.module.device
            if self._free is not None:
                self._free()
            self._bytes = 2 * num_bytes
            self._address = device.alloc(self._bytes)
            self._free = weakref.finalize(self, device.free, self._address)
        return self._address


def _parts(rows: int, vocab: int, num_units: int) -> int:
    """How many blocks look at each row before one finishes it; 0 where rows keep the device busy, or are too short to cut."""
    parts = min(2 * num_units // rows if rows else 0, vocab // LEAST_OF_PART)
    return parts if parts > 1 else 0


class _Layout:
    """Places in one block of memory, one behind the other."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, num_bytes: int) -> int:
        at = self.size
        self.size += num_bytes + -num_bytes % _ALIGN
        return at
