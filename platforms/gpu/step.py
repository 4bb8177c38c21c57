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
#: steps that may be on their way to the device at a time
STAGED = 8


def _up(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGN) * _ALIGN


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
        given = (token_ids, positions, query_start, kv_len, token_seq, token_types, logits_rows)
        self.arrays = [None if array is None else np.asarray(array, np.int32) for array in given]
        self.tables = [np.asarray(table, np.int32) for table in tables]
        self.pool = pool
        self.longest = 0 if kv_len is None or num_seqs == 0 else int(np.max(kv_len[:num_seqs]))
        new = () if query_start is None else np.diff(np.asarray(query_start)[: num_seqs + 1])
        self.most_new = int(np.max(new, initial=0))  # tokens of a sequence in this step
        if kv_len is not None and np.any(np.asarray(kv_len)[: len(new)] < new):
            raise PlatformError(
                "a step has tokens that see the others of their text and are not seen (query expansion of ColBERT); GPUs do not "
                "run those yet: take --device cpu"
            )

    def num_bytes(self) -> int:
        """Of the whole step as it lies in memory."""
        parts = [array.size * 4 for array in (*self.arrays, *self.tables) if array is not None]
        return sum(_up(size) for size in (_HEAD.size, *parts))

    def pack(self, into: NDArray[np.uint8], address: int) -> None:
        """Writes the step as it is to lie at `address`."""
        at, pointers = _up(_HEAD.size), []
        for array in (*self.arrays, *self.tables):
            if array is None:
                pointers.append(0)
                continue
            pointers.append(address + at)
            into[at : at + array.size * 4].view(np.int32)[:] = array.reshape(-1)
            at += _up(array.size * 4)
        groups: list[int] = []
        for pointer, table in zip(pointers[len(self.arrays) :], self.tables, strict=True):
            groups += [pointer, table.shape[1]]
        groups += [0] * (2 * MAX_GROUPS - len(groups))
        head = _HEAD.pack(*self.counts, *pointers[: len(self.arrays)], self.pool, *groups)
        into[: _HEAD.size] = np.frombuffer(head, np.uint8)


class StepMemory:
    """Where a device keeps the step in hand; grows with the largest. Steps go there from page-locked memory, several of which
    may be on their way."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.address = 0
        self._bytes = 0
        self._staged: list[NDArray[np.uint8]] = []
        self._turn = 0
        self._step: Step | None = None

    def hold(self, step: Step) -> int:
        """The address of `step` on the device, where it is put if it is not there yet."""
        if self._step is step:
            return self.address
        size = step.num_bytes()
        if size > self._bytes:
            self._grow(2 * size)
        if self._turn == len(self._staged):  # the first of them may not have got there yet
            self.device.synchronize()
            self._turn = 0
        staged = self._staged[self._turn][:size]
        self._turn += 1
        step.pack(staged, self.address)
        self.device.write(self.address, staged)
        self._step = step
        return self.address

    def _grow(self, num_bytes: int) -> None:
        self.device.synchronize()
        if self.address:
            self.device.free(self.address)
        self._bytes = num_bytes
        self.address = self.device.alloc(num_bytes)
        self._staged = [self.device.pinned(num_bytes) for _ in range(STAGED)]
        self._turn = 0
