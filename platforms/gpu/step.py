"""A step in device memory: counts, the batch's arrays and the page tables, put there by one copy.

Twin of csrc_common/exec/step.h: three counts, pointers to seven arrays, the pool, and (table, stride) of eight KV groups; the
arrays lie behind it. Null where a batch has none.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.device import Device

MAX_GROUPS = 8
_HEAD = struct.Struct("<3q8Q" + "Qq" * MAX_GROUPS)
_ALIGN = 64


class Step:
    """What `Program.run` takes, as the native module of CPUs has it; arrays are the host's."""

    def __init__(
        self,
        num_tokens: int,
        num_seqs: int,
        num_logits: int,
        token_ids: Any,
        positions: Any,
        query_start: Any,
        kv_len: Any,
        token_seq: Any,
        token_types: Any,
        logits_rows: Any,
        pool: int,
        tables: Sequence[NDArray[np.int32]],
    ) -> None:
        if len(tables) > MAX_GROUPS:
            raise PlatformError(f"{len(tables)} KV groups; a step holds at most {MAX_GROUPS}")
        self.counts = (num_tokens, num_seqs, num_logits)
        positions = None if positions is None else np.asarray(positions).reshape(-1)[:num_tokens]
        self.arrays = [token_ids, positions, query_start, kv_len, token_seq, token_types, logits_rows]
        self.tables = list(tables)
        self.pool = pool
        self.longest = 0 if kv_len is None or num_seqs == 0 else int(np.max(kv_len[:num_seqs]))

    def packed(self, address: int) -> NDArray[np.uint8]:
        """The bytes of the whole step as it lies at `address`."""
        parts, at = [], -(-_HEAD.size // _ALIGN) * _ALIGN
        pointers = []
        for array in (*self.arrays, *self.tables):
            if array is None:
                pointers.append(0)
                continue
            flat = np.ascontiguousarray(array, np.int32).reshape(-1).view(np.uint8)
            pointers.append(address + at)
            parts.append((at, flat))
            at += -(-flat.size // _ALIGN) * _ALIGN
        out = np.zeros(at, np.uint8)
        groups: list[int] = []
        for pointer, table in zip(pointers[len(self.arrays) :], self.tables, strict=True):
            groups += [pointer, table.shape[1]]
        groups += [0] * (2 * MAX_GROUPS - len(groups))
        head = _HEAD.pack(*self.counts, *pointers[: len(self.arrays)], self.pool, *groups)
        out[: _HEAD.size] = np.frombuffer(head, np.uint8)
        for start, flat in parts:
            out[start : start + flat.size] = flat
        return out


class StepMemory:
    """Where a device keeps the step in hand; grows with the largest."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.address = 0
        self._bytes = 0
        self._step: Step | None = None

    def hold(self, step: Step) -> int:
        """The address of `step` on the device, where it is put if it is not there yet."""
        if self._step is not step:
            packed = step.packed(self.address)
            if packed.size > self._bytes:
                if self.address:
                    self.device.synchronize()
                    self.device.free(self.address)
                self._bytes = 2 * packed.size
                self.address = self.device.alloc(self._bytes)
                packed = step.packed(self.address)
            self.device.write(self.address, packed)
            self._step = step
        return self.address
