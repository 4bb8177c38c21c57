"""Batches, passes and pages of attention: neighbours, stale pages and the cut into passes do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases.common import F32, batch_of, normal, num_pages, one_layer

from octavo.platforms.reference.kv import PagePool, query_positions
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.registry import PLATFORMS

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base import attention
from octavo.platforms.gpu.torch_base.cell import NumpyOps, TorchCell
from octavo.platforms.gpu.torch_base.runtime import torch
from octavo.platforms.reference.sample import sample

CPU = torch.device("cpu")
HEADS, DIM = 4, 32
SEQS = ((1500, 1), (0, 70), (30, 1), (2000, 3), (1023, 1), (700, 40))


def filled(ops: Any, spec: Any, seqs: Any) -> Any:
    """Ops over pages that hold all keys; the step that follows is begun."""
    step, before = batch_of(seqs, spec), batch_of([(0, p) for p, _ in seqs], spec)
    before.block_tables = step.block_tables
    for tag, batch in (("past", before), ("new", step)):
        ops.begin(batch)
        k, v = (normal(f"{part} {tag}", batch.num_tokens, spec.num_kv_heads * DIM) for part in "kv")
        ops.kv_append(k, v, layer=0)
    return ops


def attended(ops: Any, seqs: Any, **how: Any) -> F32:
    q = normal("q", sum(n for _, n in seqs), HEADS * DIM)
    result: F32 = ops.paged_attention(q, layer=0, heads=HEADS, scale=DIM**-0.5, **how)
    return result


def pages_of(spec: Any, seqs: Any) -> int:
    return num_pages(spec, np.array([p + n for p, n in seqs], np.int32))


def made(spec: Any, seqs: Any = SEQS) -> NumpyOps:
    return TorchCell(CPU, sample).ops(spec, pages_of(spec, seqs))


@pytest.mark.parametrize("window", [0, 600])
@pytest.mark.parametrize("dtype", ["f32", "int8", "fp8"])
def test_passes_of_one_segment_give_what_one_pass_gives(
    dtype: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = one_layer(dtype, 2, DIM, window)
    how = {"sinks": normal("sinks", HEADS), "alibi": np.abs(normal("slopes", HEADS)) / 64, "softcap": 4.0}
    whole = attended(filled(made(spec), spec, SEQS), SEQS, **how)
    want = attended(filled(ReferenceOps(PagePool(spec, pages_of(spec, SEQS))), spec, SEQS), SEQS, **how)
    assert np.abs(whole - want).max() <= (3e-6 if dtype == "f32" else 6e-3) * np.abs(want).max()
    monkeypatch.setattr(attention, "WORK_ELEMENTS", 1)
    again = attended(filled(made(spec), spec, SEQS), SEQS, **how)
    assert np.abs(again - whole).max() <= 2e-6 * np.abs(whole).max()


def test_sequences_are_put_into_few_buckets() -> None:
    """Alike in queries and in segments, each within a factor of two; without queries in none."""
    seqs = (*((n, 1) for n in (5, 1500, 30, 1100, 2040, 511)), (0, 40), (100, 0), (30, 33), (2000, 3))
    batch = batch_of(seqs)
    at = query_positions(batch).astype(np.int64)
    found = attention.buckets(batch.query_start, at, at * 0, at, CPU)
    assert [bucket.seqs.tolist() for bucket in found] == [[0, 2, 5], [1, 3, 4], [9], [6, 8]]
    assert [list(bucket.rows.shape) for bucket in found] == [[3, 1], [3, 1], [1, 3], [2, 40]]
    assert found[3].rows[1].tolist() == [*range(46, 79), *[78] * 7]
    assert [bucket.length for bucket in found] == [512, 2041, 2003, 63]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "int8", "fp8"])
def test_what_stale_pages_hold_is_not_seen(dtype: str) -> None:
    """Null page, the rest of a last page and a window's past hold NaN of whoever had them before."""
    spec, seqs = one_layer(dtype, 2, DIM, window=40), ((100, 1), (5, 20), (33, 1))
    clean = attended(filled(made(spec, seqs), spec, seqs), seqs)
    ops = made(spec, seqs)
    pages = ops.torch_ops.pages
    assert pages is not None
    if spec.has_scales:
        pages.data.fill_(-128 if dtype == "int8" else 0x7F)
        pages.scales.fill_(torch.nan)  # type: ignore[union-attr]
    else:
        pages.data.fill_(torch.nan)
    assert attended(filled(ops, spec, seqs), seqs).tobytes() == clean.tobytes()


def test_e4m3_codes_are_those_of_the_reference() -> None:
    spec, seqs = one_layer("fp8", 2, DIM), ((0, 40),)
    k = normal("codes", 40, 2 * DIM, scale=0.05) ** 3  # from normal numbers down to below the least one
    k[1], k[2, 0], k[3, :2] = 0, np.inf, (1e-44, -1e-44)
    pool, ops = PagePool(spec, 3), made(spec, seqs)
    for one in (ReferenceOps(pool), ops):
        one.begin(batch_of(seqs, spec))
        with np.errstate(all="ignore"):
            one.kv_append(k, -k, layer=0)
    pages = ops.torch_ops.pages
    assert pages is not None and pages.scales is not None and pool.scales is not None
    assert np.array_equal(pages.data.numpy()[1:3], pool.data[1:3])
    assert np.array_equal(pages.scales.numpy()[1:3], pool.scales[1:3])
    assert not np.isin(pool.data, (0x7F, 0x80, 0xFF)).any() and len(np.unique(pool.data)) > 200


def test_pages_are_copied_in_order() -> None:
    spec = one_layer("int8", 1, DIM)
    cell = TorchCell(CPU, sample)
    ops = cell.ops(spec, 4)
    pages = ops.torch_ops.pages
    assert pages is not None and pages.scales is not None
    pages.data[1], pages.scales[1] = 7, 0.5
    cell.copy_blocks(ops, [(1, 2), (2, 3)])
    assert (pages.data[3] == 7).all() and (pages.scales[3] == 0.5).all()


def test_no_tokens_give_no_rows() -> None:
    spec = one_layer("bf16", 2, DIM)
    ops = made(spec)
    ops.begin(batch_of((), spec))
    nothing = np.zeros((0, HEADS * DIM), np.float32)
    ops.kv_append(nothing[:, : 2 * DIM], nothing[:, : 2 * DIM], layer=0)
    assert ops.paged_attention(nothing, layer=0, heads=HEADS, scale=1.0).shape == (0, HEADS * DIM)
