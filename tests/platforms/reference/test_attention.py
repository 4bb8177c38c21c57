"""Paged attention on the reference: the same bits however a prompt is cut, whoever shares the batch, wherever pages lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.cases.common import batch_of, normal, num_pages, one_layer

from octavo.platforms.reference.kv import PagePool, page_bytes
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.types import KVSpec

HEADS, KV_HEADS, DIM, LENGTH = 2, 1, 32, 530
DTYPES = ("f32", "bf16", "f16", "int8", "fp8")


def rows(length: int = LENGTH) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q = normal("q", LENGTH, HEADS * DIM, scale=3.0)
    return q[:length], *(normal(part, LENGTH, KV_HEADS * DIM)[:length] for part in "kv")


def attend(ops: ReferenceOps, spec: KVSpec, start: int, stop: int) -> np.ndarray:
    """One step over tokens start .. stop of a sequence of LENGTH tokens in pages laid out for the whole."""
    q, k, v = rows()
    batch = batch_of([(start, stop - start)], spec)
    batch.block_tables = batch_of([(0, LENGTH)], spec).block_tables
    ops.begin(batch)
    ops.kv_append(k[start:stop], v[start:stop], layer=0)
    return ops.paged_attention(q[start:stop], layer=0, heads=HEADS, scale=DIM**-0.5)


def fresh(spec: KVSpec, num: int = 40) -> ReferenceOps:
    return ReferenceOps(PagePool(spec, num))


@pytest.mark.parametrize(("dtype", "window"), [*((dtype, 0) for dtype in DTYPES), ("bf16", 40)])
def test_any_cut_of_the_prompt_gives_the_same_bits(dtype: str, window: int) -> None:
    spec = one_layer(dtype, KV_HEADS, DIM, window)
    cuts = ([0, LENGTH], [0, 1, 64, 65, 511, 512, 513, LENGTH])
    results = []
    for cut in cuts:
        ops = fresh(spec)
        results.append(np.concatenate([attend(ops, spec, a, b) for a, b in pairwise(cut)]))
    for other in results[1:]:
        assert np.array_equal(results[0].view(np.uint32), other.view(np.uint32))


def test_a_neighbour_in_the_batch_changes_no_bit() -> None:
    spec = one_layer("bf16", KV_HEADS, DIM)
    q, k, v = rows(40)
    alone = batch_of([(0, 40)], spec)
    ops = fresh(spec)
    ops.begin(alone)
    ops.kv_append(k, v, layer=0)
    want = ops.paged_attention(q, layer=0, heads=HEADS, scale=0.2)
    shared = batch_of([(0, 7), (0, 40), (0, 1)], spec)
    ops = fresh(spec)
    ops.begin(shared)
    noise = [
        normal(f"noise{i}", 48, width, scale=50.0)
        for i, width in enumerate((HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM))
    ]
    mixed = [np.concatenate([n[:7], mine, n[7:8]]) for n, mine in zip(noise, (q, k, v), strict=True)]
    ops.kv_append(mixed[1], mixed[2], layer=0)
    got = ops.paged_attention(mixed[0], layer=0, heads=HEADS, scale=0.2)[7:47]
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copied_page_serves_like_the_original(dtype: str) -> None:
    spec = one_layer(dtype, KV_HEADS, DIM)
    q, k, v = rows(40)
    batch = batch_of([(0, 40)], spec)
    ops = fresh(spec)
    ops.begin(batch)
    ops.kv_append(k, v, layer=0)
    want = ops.paged_attention(q, layer=0, heads=HEADS, scale=0.2)
    assert ops.pages is not None
    first = int(batch.block_tables[0][0, 0])
    ops.pages.copy_blocks([(first, 30), (30, 31)])
    ops.pages.data[first] = 0
    batch.block_tables[0][0, 0] = 31
    assert np.array_equal(ops.paged_attention(q, layer=0, heads=HEADS, scale=0.2), want)


def test_rubbish_in_pages_that_no_query_sees_is_not_read() -> None:
    spec = one_layer("f32", KV_HEADS, DIM, window=20)
    q, k, v = rows(110)
    results = []
    for rubbish in (0.0, np.nan):
        ops = fresh(spec, num_pages(spec, np.array([110])) + 1)
        assert ops.pages is not None
        ops.pages.data[:] = rubbish
        batch = batch_of([(100, 10)], spec)
        before = batch_of([(64, 36)], spec)
        before.block_tables = batch.block_tables
        ops.begin(before)
        ops.kv_append(k[64:100], v[64:100], layer=0)
        ops.pages.data[0] = rubbish  # the null page
        ops.begin(batch)
        ops.kv_append(k[100:], v[100:], layer=0)
        results.append(ops.paged_attention(q[100:], layer=0, heads=HEADS, scale=0.2))
    assert np.isfinite(results[0]).all()
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(("dtype", "element"), [("f32", 4), ("bf16", 2), ("f16", 2), ("int8", 1), ("fp8", 1)])
def test_page_bytes_are_the_bytes_of_a_page(dtype: str, element: int) -> None:
    spec = one_layer(dtype, KV_HEADS, DIM)
    pool = PagePool(spec, 3)
    scales = 0 if pool.scales is None else pool.scales[0].nbytes
    assert page_bytes(spec) == pool.data[0].nbytes + scales
    assert pool.data[0].nbytes == 2 * KV_HEADS * 32 * DIM * element
