"""Arena planning: live buffers never overlap, dead ones share, and the result is near its lower bound."""

from __future__ import annotations

import random

import pytest

from octavo.platforms.recorded.plan import ALIGN_BYTES, Buffer, live_bytes, place


def overlaps(a: Buffer, b: Buffer) -> bool:
    in_time = a.first <= b.last and b.first <= a.last
    return in_time and a.offset < b.offset + b.num_bytes and b.offset < a.offset + a.num_bytes


@pytest.mark.parametrize("seed", range(20))
def test_buffers_alive_together_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    buffers = []
    for _ in range(rng.randrange(1, 80)):
        first = rng.randrange(100)
        buffers.append(Buffer(rng.randrange(1, 5000), first, min(99, first + rng.randrange(12))))
    total = place(buffers)
    assert all(b.offset >= 0 and b.offset % ALIGN_BYTES == 0 and b.offset + b.num_bytes <= total for b in buffers)
    assert not any(overlaps(a, b) for i, a in enumerate(buffers) for b in buffers[:i])
    assert live_bytes(buffers) <= total


def test_a_chain_of_steps_needs_two_buffers() -> None:
    buffers = [Buffer(4096, i, i + 1) for i in range(50)]
    assert place(buffers) == 2 * 4096 == live_bytes(buffers)


def test_nothing_needs_nothing() -> None:
    assert place([]) == 0 == live_bytes([])
