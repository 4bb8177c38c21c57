"""Philox against the published known answers, and Gumbel noise against its formula over the whole range of draws."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.platforms.reference.philox import draws, gumbel, philox

KNOWN = [  # counter, key, result: the known-answer file of Random123
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], want: tuple[int, ...]) -> None:
    c0, c1, c2, c3 = (np.array([word], np.uint32) for word in counter)
    assert tuple(int(word[0]) for word in philox((c0, c1, c2, c3), key)) == want


def test_every_part_of_the_key_changes_the_draw_and_the_set_of_ids_does_not() -> None:
    ids = np.arange(1000, dtype=np.int32)
    base = draws(ids, 7, 0, 5)
    others = [
        draws(ids, 8, 0, 5),
        draws(ids, 7 + (1 << 32), 0, 5),
        draws(ids, 7, 1, 5),
        draws(ids, 7, 0, 6),
        draws(ids, 7, 0, 5 + (1 << 32)),
        draws(ids, 7, 0, 5, purpose=1),
    ]
    for other in others:
        assert (base == other).mean() < 0.01
    assert np.unique(base).size == 1000
    some = np.array([3, 998, 41], np.int32)
    assert np.array_equal(draws(some, 7, 0, 5), base[some])


def test_gumbel_is_finite_and_accurate_at_both_ends() -> None:
    edges = [0, 1, 2, 3, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 2, 2**32 - 1]
    step = np.arange(0, 2**32, 40_009, dtype=np.uint64)
    words = np.concatenate([np.array(edges, np.uint64), np.arange(2**32 - 3000, 2**32, dtype=np.uint64), step])
    got = gumbel(words.astype(np.uint32))
    assert np.isfinite(got).all() and got.min() > -3.2 and got.max() < 22.9
    u = (words.astype(np.float64) + 0.5) / 2.0**32
    e = np.where(u > 0.5, -np.log1p(-(2.0**32 - 0.5 - words.astype(np.float64)) / 2.0**32), -np.log(u))
    want = -np.log(e)
    assert (np.abs(got - want) <= 4e-7 * np.maximum(np.abs(want), 1)).all()


def test_gumbel_grows_with_the_draw() -> None:
    words = np.arange(0, 2**32, 1_000_003, dtype=np.uint64).astype(np.uint32)
    assert (np.diff(gumbel(words).astype(np.float64)) >= 0).all()
