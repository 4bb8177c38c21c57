"""relative_attention gives the reference's bits: terms of both tables, buckets that are shared, distances beyond the last."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels, same_bits, variants

from octavo.engine.errors import PlatformError
from octavo.platforms.reference.ops import ReferenceOps

OPS = {"f32": "relative_attention", "bf16": "relative_attention_bf16"}
CASES = [pytest.param(dtype, *case.values, id=case.id) for dtype, op in OPS.items() for case in variants(op)]
LEVELS = [
    pytest.param(dtype, *level.values, id=f"{dtype}-{level.id}") for dtype, op in OPS.items() for level in levels(op)
]
HEADS = 2


@cache
def buckets(near: int, far: int = 0, shared: int = 1) -> tuple[int, ...]:
    """Distances up to `near` have a bucket each, then each `shared` have one of `far`, on both sides."""
    side = [*range(1, near + 1), *(near + 1 + i // shared for i in range(far * shared))]
    last = side[-1] if side else 0
    return (*(last - bucket for bucket in side[::-1]), *(last + bucket for bucket in (0, *side)))


def inputs(total: int, dim: int, by_distance: tuple[int, ...]) -> list[np.ndarray]:
    """q, k, v, rel_k, rel_q."""
    rng = np.random.default_rng(total + dim)
    rows = [rng.standard_normal((total, HEADS * dim)).astype(np.float32) for _ in "qkv"]
    size = (by_distance[-1] + 1) * HEADS * dim
    return [*rows, *(0.5 * rng.standard_normal(size).astype(np.float32) for _ in "kq")]


def run(
    ops: object,
    lengths: tuple[int, ...],
    x: list[np.ndarray],
    by_distance: tuple[int, ...],
    dtype: str,
    terms: str = "kq",
) -> np.ndarray:
    ops.begin(batch_of([(0, n) for n in lengths], np.zeros((len(lengths), 1), np.int32)))
    tables = {f"rel_{name}": table if name in terms else None for name, table in zip("kq", x[3:], strict=True)}
    scale = (3 * x[0].shape[1] / HEADS) ** -0.5
    out: np.ndarray = ops.relative_attention(
        *x[:3], heads=HEADS, scale=scale, by_distance=by_distance, dtype=dtype, **tables
    )
    return out


@cache
def wanted(
    lengths: tuple[int, ...], dim: int, by_distance: tuple[int, ...], dtype: str, terms: str = "kq"
) -> np.ndarray:
    return run(ReferenceOps(), lengths, inputs(sum(lengths), dim, by_distance), by_distance, dtype, terms)


@pytest.mark.parametrize("dim", [10, 32, 48, 64, 96, 128, 256, 288])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_ragged_sequences_have_the_reference_bits(dtype: str, name: str, level: str, dim: int) -> None:
    lengths, by_distance = (1, 33, 32, 0, 70), buckets(20, 6, 3)
    ops = eager(level, threads=2)
    found = run(ops, lengths, inputs(sum(lengths), dim, by_distance), by_distance, dtype)
    assert_bits(found, wanted(lengths, dim, by_distance, dtype), f"{name} {dim}")
    assert ops.last_variant(OPS[dtype]) == name


@pytest.mark.parametrize("terms", ["k", "q"])
@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_either_table_may_be_missing(dtype: str, level: str, terms: str) -> None:
    lengths, by_distance = (40, 5), buckets(7, 5, 4)
    found = run(eager(level), lengths, inputs(45, 32, by_distance), by_distance, dtype, terms)
    assert_bits(found, wanted(lengths, 32, by_distance, dtype, terms))
    assert not same_bits(found, wanted(lengths, 32, by_distance, dtype))


@pytest.mark.parametrize("by_distance", [buckets(0), buckets(3), buckets(128, 127, 4), buckets(700)], ids=len)
@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_long_sequences_go_over_borders_and_beyond_the_reach(
    dtype: str, level: str, by_distance: tuple[int, ...]
) -> None:
    lengths = (560, 3)
    found = run(eager(level, threads=2), lengths, inputs(563, 32, by_distance), by_distance, dtype)
    assert_bits(found, wanted(lengths, 32, by_distance, dtype))


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_a_neighbour_full_of_nan_changes_nothing(dtype: str, level: str) -> None:
    lengths, by_distance = (5, 40, 7), buckets(9, 3, 2)
    x = inputs(52, 32, by_distance)
    clean = run(eager(level), lengths, x, by_distance, dtype)
    dirty = [*(a.copy() for a in x[:3]), *x[3:]]
    for a in dirty[:3]:
        a[5:45] = np.nan
    found = run(eager(level), lengths, dirty, by_distance, dtype)
    assert_bits(found[:5], clean[:5])
    assert_bits(found[45:], clean[45:])
    assert np.isnan(found[5:45]).all()


@pytest.mark.parametrize(("dtype", "level"), LEVELS)
def test_tokens_beyond_kv_len_are_not_seen(dtype: str, level: str) -> None:
    by_distance = buckets(9, 3, 2)
    x = inputs(40, 32, by_distance)

    def beyond(ops: object, values: list[np.ndarray]) -> np.ndarray:
        batch = batch_of([(0, 40)], np.zeros((1, 1), np.int32))
        batch.kv_len = np.array([34], np.int32)
        ops.begin(batch)
        how = {"rel_k": x[3], "rel_q": x[4], "by_distance": by_distance, "dtype": dtype}
        out: np.ndarray = ops.relative_attention(*values, heads=HEADS, scale=0.1, **how)
        return out

    found = beyond(eager(level), x[:3])
    spoilt = [x[0], *(part.copy() for part in x[1:3])]
    for part in spoilt[1:]:
        part[34:] = np.nan
    assert_bits(beyond(eager(level), spoilt), found, "spoilt rest")
    assert_bits(found, beyond(ReferenceOps(), x[:3]), "reference")


@pytest.mark.parametrize(
    ("by_distance", "size", "text"),
    [
        ((0, 1), 128, "2 \\* reach \\+ 1"),
        ((1, 1, 2), 192, "begin with 0"),
        ((0, 2, 3), 256, "the one before or one more"),
        ((0, 1, 2), 128, "3 buckets of 64 each"),
    ],
)
def test_distances_that_make_no_table_are_refused(by_distance: tuple[int, ...], size: int, text: str) -> None:
    ops, x = ReferenceOps(), np.zeros((3, 64), np.float32)
    ops.begin(batch_of([(0, 3)], np.zeros((1, 1), np.int32)))
    with pytest.raises(PlatformError, match=text):
        ops.relative_attention(x, x, x, heads=2, scale=1.0, by_distance=by_distance, rel_k=np.zeros(size, np.float32))
    with pytest.raises(PlatformError, match="rel_k, rel_q or both"):
        ops.relative_attention(x, x, x, heads=2, scale=1.0, by_distance=(0, 1, 2))
    with pytest.raises(PlatformError, match="allowed are up to 1024"):
        wide = np.zeros((3, 2052), np.float32)
        ops.relative_attention(wide, wide, wide, heads=2, scale=1.0, by_distance=(0,), rel_k=wide[0])
