"""varlen_attention gives the reference's bits: both directions, windows, shared heads, sequences that never mix."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels, same_bits, variants

from octavo.platforms.reference.ops import ReferenceOps

OPS = {"f32": "varlen_attention", "bf16": "varlen_attention_bf16"}
CASES = [pytest.param(dtype, *case.values, id=case.id) for dtype, op in OPS.items() for case in variants(op)]
LEVELS = [
    pytest.param(dtype, *level.values, id=f"{dtype}-{level.id}") for dtype, op in OPS.items() for level in levels(op)
]


def inputs(total: int, heads: int, kv_heads: int, dim: int) -> list[np.ndarray]:
    rng = np.random.default_rng(total + dim)
    return [rng.standard_normal((total, n * dim)).astype(np.float32) for n in (heads, kv_heads, kv_heads)]


def run(
    ops: object, lengths: tuple[int, ...], x: list[np.ndarray], heads: int, kv_heads: int, **options: object
) -> np.ndarray:
    ops.begin(batch_of([(0, n) for n in lengths], np.zeros((len(lengths), 1), np.int32)))
    dim = x[0].shape[1] // heads
    out: np.ndarray = ops.varlen_attention(*x, heads=heads, kv_heads=kv_heads, scale=dim**-0.5, **options)
    return out


@cache
def wanted(
    lengths: tuple[int, ...],
    heads: int,
    kv_heads: int,
    dim: int,
    dtype: str,
    window: int = 0,
    alibi: bool = False,
    **more: object,
) -> np.ndarray:
    x = inputs(sum(lengths), heads, kv_heads, dim)
    slopes = np.linspace(0.05, 1, heads).astype(np.float32) if alibi else None
    return run(ReferenceOps(), lengths, x, heads, kv_heads, window=window, alibi=slopes, dtype=dtype, **more)


@pytest.mark.parametrize("dim", [32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 288, 10])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_ragged_sequences_have_the_reference_bits(dtype: str, name: str, level: str, dim: int) -> None:
    lengths = (1, 33, 32, 5)
    for heads, kv_heads in ((2, 2), (3, 1)):
        ops = eager(level, threads=2)
        found = run(ops, lengths, inputs(sum(lengths), heads, kv_heads, dim), heads, kv_heads, dtype=dtype)
        assert_bits(found, wanted(lengths, heads, kv_heads, dim, dtype), f"{name} {heads}/{kv_heads}/{dim}")
        assert ops.last_variant(OPS[dtype]) == name


@pytest.mark.parametrize("window", [1, 31, 32, 64])
@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_a_window_cuts_both_ways(dtype: str, level: str, window: int) -> None:
    lengths = (70, 3)
    found = run(eager(level), lengths, inputs(73, 2, 1, 32), 2, 1, window=window, dtype=dtype)
    assert_bits(found, wanted(lengths, 2, 1, 32, dtype, window))
    assert not same_bits(found, wanted(lengths, 2, 1, 32, dtype))


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_alibi_counts_the_distance_both_ways(dtype: str, level: str) -> None:
    slopes = np.linspace(0.05, 1, 2).astype(np.float32)
    found = run(eager(level), (40,), inputs(40, 2, 2, 32), 2, 2, alibi=slopes, dtype=dtype)
    assert_bits(found, wanted((40,), 2, 2, 32, dtype, 0, True))


@pytest.mark.parametrize("window", [0, 1, 40])
@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_causal_queries_see_nothing_behind_them(dtype: str, level: str, window: int) -> None:
    """Over the border of a segment, too; a sequence cut short keeps the bits of what is left."""
    lengths = (550, 1, 33)
    x = inputs(584, 2, 1, 32)
    found = run(eager(level, threads=2), lengths, x, 2, 1, window=window, is_causal=True, dtype=dtype)
    assert_bits(found, wanted(lengths, 2, 1, 32, dtype, window, is_causal=True))
    assert not same_bits(found, wanted(lengths, 2, 1, 32, dtype, window))
    short = run(eager(level), (40,), [a[:40] for a in x], 2, 1, window=window, is_causal=True, dtype=dtype)
    assert_bits(short, found[:40])


@pytest.mark.parametrize("reach", [3, 40])
@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_a_bias_is_added_by_distance_and_ends_at_its_reach(dtype: str, level: str, reach: int) -> None:
    lengths, rng = (70, 3, 530), np.random.default_rng(reach)
    bias, x = rng.standard_normal(2 * (2 * reach + 1)).astype(np.float32), inputs(603, 2, 1, 32)
    found = run(eager(level, threads=2), lengths, x, 2, 1, bias=bias, reach=reach, dtype=dtype)
    plain = run(ReferenceOps(), lengths, x, 2, 1, dtype=dtype)
    assert_bits(found, run(ReferenceOps(), lengths, x, 2, 1, bias=bias, reach=reach, dtype=dtype))
    assert not same_bits(found, plain)


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_sequences_longer_than_a_segment_fold(dtype: str, level: str) -> None:
    lengths = (520,)
    x = inputs(520, 1, 1, 8)
    found = run(eager(level, threads=2), lengths, x, 1, 1, window=500, dtype=dtype)
    assert_bits(found, wanted(lengths, 1, 1, 8, dtype, 500))


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_a_neighbour_full_of_nan_changes_nothing(dtype: str, level: str) -> None:
    lengths = (5, 40, 7)
    x = inputs(52, 2, 1, 32)
    clean = run(eager(level), lengths, x, 2, 1, dtype=dtype)
    dirty = [a.copy() for a in x]
    for a in dirty:
        a[5:45] = np.nan
    found = run(eager(level), lengths, dirty, 2, 1, dtype=dtype)
    assert_bits(found[:5], clean[:5])
    assert_bits(found[45:], clean[45:])
    assert np.isnan(found[5:45]).all()


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
@pytest.mark.parametrize("dim", [32, 48])
def test_a_long_sequence_of_many_tiles_has_the_reference_bits(dtype: str, level: str, dim: int) -> None:
    """Tiles of a unit share what was made of their keys and values, from segment to segment; a last block is half full."""
    lengths = (1050, 17)
    for window in (0, 40):
        found = run(eager(level, threads=2), lengths, inputs(1067, 2, 2, dim), 2, 2, window=window, dtype=dtype)
        assert_bits(found, wanted(lengths, 2, 2, dim, dtype, window))


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_tokens_beyond_kv_len_see_the_others_and_are_not_seen(dtype: str, level: str) -> None:
    """Rows of the keys alone are those of the sequences cut there, and no value of the rest reaches any row."""
    lengths, seen = (40, 9, 33), (37, 4, 33)
    x = inputs(sum(lengths), 2, 1, 32)
    starts = np.concatenate([[0], np.cumsum(lengths)])

    def beyond(values: list[np.ndarray]) -> np.ndarray:
        ops = eager(level, threads=2)
        batch = batch_of([(0, n) for n in lengths], np.zeros((3, 1), np.int32))
        batch.kv_len = np.array(seen, np.int32)
        ops.begin(batch)
        out: np.ndarray = ops.varlen_attention(*values, heads=2, kv_heads=1, scale=32**-0.5, dtype=dtype)
        return out

    found = beyond(x)
    kept = np.concatenate([np.arange(start, start + n) for start, n in zip(starts, seen, strict=False)])
    cut = run(eager(level), seen, [np.ascontiguousarray(part[kept]) for part in x], 2, 1, dtype=dtype)
    assert_bits(np.ascontiguousarray(found[kept]), cut, "rows of keys")
    spoilt = [x[0], *(part.copy() for part in x[1:])]
    rest = np.setdiff1d(np.arange(len(x[0])), kept)
    for part in spoilt[1:]:
        part[rest] = np.nan
    assert_bits(beyond(spoilt), found, "rows with spoilt rest")
    reference = ReferenceOps()
    batch = batch_of([(0, n) for n in lengths], np.zeros((3, 1), np.int32))
    batch.kv_len = np.array(seen, np.int32)
    reference.begin(batch)
    assert_bits(found, reference.varlen_attention(*x, heads=2, kv_heads=1, scale=32**-0.5, dtype=dtype), "reference")
