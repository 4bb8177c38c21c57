"""Memory for shared sequences: none where nothing can be shared, one whole sequence always, and never without bound."""

from __future__ import annotations

import pytest

from octavo.platforms.cpu.partials import MOST_BYTES, partials_bytes
from octavo.platforms.platform import Capacity


def bytes_of(
    *, max_len: int = 8192, max_seqs: int = 64, window: int = 0, num_threads: int = 2, kv_heads: int = 8
) -> int:
    capacity = Capacity(256, max_seqs, 1, max_len, 1)
    return partials_bytes(capacity, heads=32, kv_heads=kv_heads, head_dim=64, window=window, num_threads=num_threads)


def one(tokens: int) -> int:
    """A sequence of so many tokens: 66 floats per head and segment."""
    return -(-tokens // 512) * 32 * 66 * 4


@pytest.mark.parametrize("given", [{"num_threads": 1}, {"max_len": 512}, {"max_len": 1}])
def test_nothing_to_share_needs_nothing(given: dict[str, int]) -> None:
    assert bytes_of(**given) == 0


def test_as_many_sequences_fit_as_can_be_worth_sharing() -> None:
    assert bytes_of() == 2 * one(8192)
    assert bytes_of(num_threads=16) == 16 * one(8192)
    assert bytes_of(num_threads=16, max_seqs=3) == 3 * one(8192)
    assert bytes_of(kv_heads=1) == 16 * one(8192)


def test_a_window_needs_its_own_segments_only() -> None:
    assert bytes_of(window=1024, max_len=1 << 20) == 2 * (one(1024 + 256) + one(1))


def test_the_longest_sequence_always_fits_and_many_stay_within_the_bound() -> None:
    assert bytes_of(max_len=1 << 24, num_threads=64) == one(1 << 24) > MOST_BYTES
    many = bytes_of(max_len=1 << 17, num_threads=256)
    assert MOST_BYTES - one(1 << 17) < many <= MOST_BYTES
