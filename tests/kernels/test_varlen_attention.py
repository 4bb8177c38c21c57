"""varlen_attention gives the reference's bits: both directions, windows, shared heads, sequences that never mix."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels, same_bits, variants

from octavo.platforms.reference.ops import ReferenceOps

CASES = variants("varlen_attention")
LEVELS = levels("varlen_attention")


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
    lengths: tuple[int, ...], heads: int, kv_heads: int, dim: int, window: int = 0, alibi: bool = False
) -> np.ndarray:
    x = inputs(sum(lengths), heads, kv_heads, dim)
    slopes = np.linspace(0.05, 1, heads).astype(np.float32) if alibi else None
    return run(ReferenceOps(), lengths, x, heads, kv_heads, window=window, alibi=slopes)


@pytest.mark.parametrize("dim", [32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 10])
@pytest.mark.parametrize(("name", "level"), CASES)
def test_ragged_sequences_have_the_reference_bits(name: str, level: str, dim: int) -> None:
    lengths = (1, 33, 32, 5)
    for heads, kv_heads in ((2, 2), (3, 1)):
        ops = eager(level, threads=2)
        found = run(ops, lengths, inputs(sum(lengths), heads, kv_heads, dim), heads, kv_heads)
        assert_bits(found, wanted(lengths, heads, kv_heads, dim), f"{name} {heads}/{kv_heads}/{dim}")
        assert ops.last_variant("varlen_attention") == name


@pytest.mark.parametrize("window", [1, 31, 32, 64])
@pytest.mark.parametrize("level", LEVELS)
def test_a_window_cuts_both_ways(level: str, window: int) -> None:
    lengths = (70, 3)
    found = run(eager(level), lengths, inputs(73, 2, 1, 32), 2, 1, window=window)
    assert_bits(found, wanted(lengths, 2, 1, 32, window))
    assert not same_bits(found, wanted(lengths, 2, 1, 32))


@pytest.mark.parametrize("level", LEVELS)
def test_alibi_counts_the_distance_both_ways(level: str) -> None:
    slopes = np.linspace(0.05, 1, 2).astype(np.float32)
    found = run(eager(level), (40,), inputs(40, 2, 2, 32), 2, 2, alibi=slopes)
    assert_bits(found, wanted((40,), 2, 2, 32, 0, True))


@pytest.mark.parametrize("level", LEVELS)
def test_sequences_longer_than_a_segment_fold(level: str) -> None:
    lengths = (520,)
    x = inputs(520, 1, 1, 8)
    found = run(eager(level, threads=2), lengths, x, 1, 1, window=500)
    assert_bits(found, wanted(lengths, 1, 1, 8, 500))


@pytest.mark.parametrize("level", LEVELS)
def test_a_neighbour_full_of_nan_changes_nothing(level: str) -> None:
    lengths = (5, 40, 7)
    x = inputs(52, 2, 1, 32)
    clean = run(eager(level), lengths, x, 2, 1)
    dirty = [a.copy() for a in x]
    for a in dirty:
        a[5:45] = np.nan
    found = run(eager(level), lengths, dirty, 2, 1)
    assert_bits(found[:5], clean[:5])
    assert_bits(found[45:], clean[45:])
    assert np.isnan(found[5:45]).all()
