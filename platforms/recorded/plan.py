"""Arena planning: buffers that are never alive together share memory.

A buffer lives from the instruction that writes it to the last that reads it. Placement is greedy by size (largest first,
lowest offset that fits among those alive at the same time), which is within a few percent of the lower bound for
transformer programs; the bound itself is the largest sum of live bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.platforms.recorded.symbols import Instruction

ALIGN_BYTES = 64


@dataclass
class Buffer:
    """`first` and `last` are instruction indices; `offset` is filled by `place`."""

    num_bytes: int
    first: int
    last: int
    offset: int = -1


def lifetimes(
    instructions: Sequence[Instruction], sizes: Sequence[int], output: int | None, head_at: int
) -> dict[int, Buffer]:
    """First and last use of every buffer, by number. What the head reads, from instruction `head_at` on (-1: there is none),
    lives to the end, as does the buffer `output`: a head may run several times."""
    lives: dict[int, Buffer] = {}
    end = len(instructions)
    for i, ins in enumerate(instructions):
        for index in (*ins.writes, *ins.reads):
            if index < 0:
                continue
            life = lives.setdefault(index, Buffer(sizes[index], i, i))
            life.last = i
    if output in lives:
        lives[output].last = end
    if head_at >= 0:
        for life in lives.values():
            if life.first < head_at <= life.last:
                life.last = end
    return lives


def place(buffers: list[Buffer]) -> int:
    """Gives every buffer its offset; returns the arena's size in bytes."""
    ordered = sorted(buffers, key=lambda b: (-b.num_bytes, b.first))
    firsts, lasts = (np.array([getattr(b, name) for b in ordered], np.int64) for name in ("first", "last"))
    total = 0
    for count, buffer in enumerate(ordered):
        size = _aligned(buffer.num_bytes)
        together = np.flatnonzero((firsts[:count] <= buffer.last) & (buffer.first <= lasts[:count]))
        at = 0
        for other in sorted((ordered[i] for i in together.tolist()), key=lambda b: b.offset):
            if at + size <= other.offset:
                break
            at = max(at, other.offset + _aligned(other.num_bytes))
        buffer.offset = at
        total = max(total, at + size)
    return total


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGN_BYTES) * ALIGN_BYTES


def live_bytes(buffers: list[Buffer]) -> int:
    """The lower bound: the largest sum of bytes alive at one instruction."""
    last = max((b.last for b in buffers), default=-1)
    return max((sum(b.num_bytes for b in buffers if b.first <= i <= b.last) for i in range(last + 1)), default=0)
