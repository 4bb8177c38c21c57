"""A step in device memory is the step of the host, however often and however large."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ci.gpu import missing
from tests.platforms.gpu.host_device import HostDevice

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.step import MAX_GROUPS, STAGED, Step, StepMemory

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))


def step_of(num_tokens: int, first: int) -> Step:
    ids = np.arange(first, first + num_tokens, dtype=np.int32)
    lengths = np.array([num_tokens], np.int32)
    start = np.array([0, num_tokens], np.int32)
    table = np.arange(3 * num_tokens, dtype=np.int32).reshape(1, -1)
    return Step(num_tokens, 1, 1, ids, ids[None], start, lengths, ids * 0, None, lengths - 1, 1 << 40, [table])


def read_back(device: HostDevice, address: int) -> tuple[tuple[int, ...], np.ndarray, tuple[int, int]]:
    """(counts, token ids, (first entry, stride) of the first page table) as a kernel would see them."""
    words = np.frombuffer(bytes(device._bytes(address, 3 * 8 + 8 * 8 + 16)), np.uint64)
    counts = tuple(int(word) for word in words[:3])
    ids = np.frombuffer(bytes(device._bytes(int(words[3]), 4 * counts[0])), np.int32)
    entry = struct.unpack("<i", bytes(device._bytes(int(words[11]) + 4, 4)))[0]
    assert int(words[8]) == 0 and int(words[10]) == 1 << 40  # no token types; the pool
    return counts, ids, (entry, int(words[12]))


def test_more_steps_than_are_staged_at_a_time_arrive_whole() -> None:
    device = HostDevice()
    memory = StepMemory(device)
    for i in range(3 * STAGED):
        step = step_of(5 + i, 100 * i)
        counts, ids, table = read_back(device, memory.hold(step))
        assert counts == (5 + i, 1, 1) and table == (1, 3 * (5 + i))
        assert ids.tolist() == list(range(100 * i, 100 * i + 5 + i))
    device.check()


def test_the_step_in_hand_is_not_sent_again() -> None:
    device = HostDevice()
    memory, step = StepMemory(device), step_of(4, 0)
    address = memory.hold(step)
    device.write(address, np.full(8, 7, np.uint8))
    assert memory.hold(step) == address
    assert device._bytes(address, 8).tolist() == [7] * 8


def test_more_groups_of_pages_than_a_step_holds_are_refused() -> None:
    tables = [np.zeros((1, 1), np.int32)] * (MAX_GROUPS + 1)
    with pytest.raises(PlatformError, match="9 KV groups"):
        Step(0, 0, 0, None, None, None, None, None, None, None, 0, tables)


def test_tokens_that_are_not_seen_are_refused() -> None:
    ids, start = np.arange(5, dtype=np.int32), np.array([0, 5], np.int32)
    with pytest.raises(PlatformError, match="see the others of their text and are not seen"):
        Step(5, 1, 1, ids, ids[None], start, np.array([4], np.int32), ids * 0, None, ids[:1], 0, [])
