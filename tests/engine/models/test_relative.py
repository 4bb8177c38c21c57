"""Buckets of relative positions are T5's, in whole numbers; a table by distance has the bias of each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.engine.models.relative import bucket_of, by_distance


@pytest.mark.parametrize(("num_buckets", "reach"), [(32, 128), (16, 64), (32, 100)])
def test_far_distances_share_buckets_that_grow_by_a_factor(num_buckets: int, reach: int) -> None:
    near = num_buckets // 4
    for apart in range(2 * reach):
        if apart < near:
            wanted = apart
        else:
            steps = math.log(apart / near) / math.log(reach / near) * near
            wanted = min(near + int(steps + 1e-9), 2 * near - 1)
        assert bucket_of(-apart, num_buckets, reach) == wanted
        assert bucket_of(apart, num_buckets, reach) == wanted + (2 * near if apart else 0)


def test_beyond_the_reach_all_are_the_last() -> None:
    assert {bucket_of(-d, 32, 128) for d in range(114, 5000)} == {15}
    assert {bucket_of(d, 32, 128) for d in range(114, 5000)} == {31}


def test_a_table_by_distance() -> None:
    learned = np.arange(64, dtype=np.float32).reshape(32, 2)
    table = by_distance(learned, 128)
    assert table.shape == (2, 257) and table.flags.c_contiguous
    assert table[0, 128] == 0.0 and table[1, 129] == learned[17, 1] and table[0, 127] == learned[1, 0]
    assert table[0, 0] == learned[15, 0] and table[0, 256] == learned[31, 0]
