"""Buckets of distances are DeBERTa's, in whole numbers; rows are projected exactly, whatever the order of sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.engine.models.disentangled import bucket_of, by_head, distances, normed, projected


@pytest.mark.parametrize(("num_buckets", "most"), [(256, 512), (32, 136), (16, 64), (9, 40)])
def test_far_distances_share_buckets_that_grow_by_a_factor(num_buckets: int, most: int) -> None:
    near = num_buckets // 2
    for apart in range(most + 20):
        wanted = apart
        if apart > near:
            wanted = near + math.ceil(math.log(apart / near) / math.log((most - 1) / near) * (near - 1) - 1e-9)
        assert bucket_of(apart, near, most) == wanted


def test_rows_go_down_as_keys_come_later_and_end_where_distances_are_clamped() -> None:
    by_distance, rows, num_rows = distances(8, 20, 100)
    reach = len(by_distance) // 2
    assert num_rows == 16 and rows == tuple(range(15, -1, -1)) and reach == 20
    for apart in range(-reach, reach + 1):  # of the key behind the query
        bucket = int(math.copysign(bucket_of(abs(apart), 4, 20), -apart))
        assert rows[by_distance[reach + apart]] == min(max(8 + bucket, 0), 15)


def test_short_texts_need_few_rows() -> None:
    by_distance, rows, num_rows = distances(0, 40, 6)
    assert num_rows == 80 and by_distance == tuple(range(11)) and rows == tuple(range(45, 34, -1))
    assert distances(256, 512, 512)[2] == 512 and len(distances(256, 512, 512)[0]) == 1023


@pytest.mark.parametrize("width", [7, 768, 5000])
def test_projections_are_those_of_more_bits(width: int) -> None:
    rng = np.random.default_rng(width)
    rows, weight = rng.standard_normal((9, width)), rng.standard_normal((11, width)).astype(np.float32)
    rows[:, 0] *= 300
    rows[3] = 0
    bias = rng.standard_normal(11).astype(np.float32)
    found = projected(rows, weight, bias)
    exact = [
        [math.fsum([*(row * column.astype(float)), b]) for column, b in zip(weight, bias, strict=True)] for row in rows
    ]
    assert found.dtype == np.float32 and float(np.abs(found - np.array(exact)).max()) <= 2e-7 * np.abs(exact).max()
    order = rng.permutation(width)
    if width <= 4096:  # one block of exact sums
        assert projected(rows[:, order], weight[:, order], bias).tobytes() == found.tobytes()


def test_norms_are_layer_norms() -> None:
    rng = np.random.default_rng(3)
    table, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 24), (24,), (24,)))
    d = table.astype(float) - table.astype(float).mean(-1, keepdims=True)
    wanted = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-7) * weight + bias
    assert np.abs(normed(table, weight, bias, 1e-7) - wanted).max() < 1e-13


def test_rows_by_head() -> None:
    flat = by_head(np.arange(12, dtype=np.float32).reshape(3, 4), 2)
    assert flat.tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
