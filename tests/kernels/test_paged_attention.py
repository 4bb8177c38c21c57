"""paged_attention gives the reference's bits, whatever the batch, the chunking, the threads, and what unused slots hold.

The native pool starts full of NaN (tests/kernels/kv_case.py), so every case here also shows that no unused slot is read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.kernels.kv_case import (
    Inputs,
    Paged,
    assert_bits,
    batch_of,
    kv_spec,
    levels,
    lowest,
    native,
    random_inputs,
    reference,
    run_whole,
    same_bits,
    tables_of,
    typed,
)

DTYPES = ("f32", "bf16", "f16", "int8", "fp8")
CASES = typed("paged_attention", DTYPES)
LEVELS = levels("paged_attention_bf16")
GROUPS = {1: (2, 2), 2: (4, 2), 3: (3, 1), 4: (8, 2), 8: (8, 1)}


def fill(paged: Paged, lengths: list[tuple[int, int]], inputs: Inputs, tables: np.ndarray) -> None:
    """Appends the keys and values of all tokens before the step, without attending."""
    before = [(0, b) for b, _ in lengths]
    _, k, v = inputs.step(before)
    paged.ops.begin(batch_of(before, tables))
    if len(k):
        paged.ops.kv_append(k, v, layer=paged.layer)


def last(paged: Paged, lengths: list[tuple[int, int]], inputs: Inputs, tables: np.ndarray) -> np.ndarray:
    fill(paged, lengths, inputs, tables)
    return paged.step(batch_of(lengths, tables), *inputs.step(lengths))


def case(
    dtype: str,
    heads: int,
    kv_heads: int,
    dim: int,
    lengths: tuple[tuple[int, int], ...],
    block: int = 32,
    window: int = 0,
) -> tuple[Any, int, Inputs, np.ndarray]:
    totals = [b + n for b, n in lengths]
    tables, pages = tables_of(totals, block, seed=dim)
    return kv_spec(dtype, kv_heads, dim, block, window), pages, random_inputs(totals, heads, kv_heads, dim), tables


@cache
def wanted(dtype: str, heads: int, kv_heads: int, dim: int, lengths: tuple[tuple[int, int], ...], window: int = 0,
           options: tuple[tuple[str, Any], ...] = ()) -> np.ndarray:  # fmt: skip
    """The reference's result; the block size cannot matter."""
    spec, pages, x, tables = case(dtype, heads, kv_heads, dim, lengths, 32, window)
    made = {k: np.array(v, np.float32) if isinstance(v, tuple) else v for k, v in options}
    return last(reference(spec, pages, heads, **made), list(lengths), x, tables)


@pytest.mark.parametrize("dim", [32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 20, 2])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_head_sizes_and_shared_heads(dtype: str, name: str, level: str, dim: int) -> None:
    lengths = ((34, 2), (0, 3))
    for heads, kv_heads in GROUPS.values():
        spec, pages, x, tables = case(dtype, heads, kv_heads, dim, lengths)
        paged = native(level, spec, pages, heads)
        found = last(paged, list(lengths), x, tables)
        assert_bits(found, wanted(dtype, heads, kv_heads, dim, lengths), f"{name} {heads}/{kv_heads}/{dim}")
        assert paged.ops.last_variant("paged_attention") == name


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_lengths_around_blocks_and_segments(dtype: str, name: str, level: str, block: int) -> None:
    for length in (1, 31, 32, 33, 511, 512, 513, 1025):
        new = min(length, 2)
        lengths = ((length - new, new),)
        spec, pages, x, tables = case(dtype, 3, 1, 32, lengths, block)
        found = last(native(level, spec, pages, 3), list(lengths), x, tables)
        assert_bits(found, wanted(dtype, 3, 1, 32, lengths), f"{name} length {length}")


@pytest.mark.parametrize("window", [1, 31, 32, 33, 100, 512, 513])
@pytest.mark.parametrize(("dtype", "name", "level"), typed("paged_attention", ("bf16", "f32")))
def test_a_window_hides_what_lies_before_it(dtype: str, name: str, level: str, window: int) -> None:
    lengths = tuple((before, 3) for before in (window - 1, window, window + 1, 560))
    spec, pages, x, tables = case(dtype, 4, 2, 32, lengths, 32, window)
    assert_bits(last(native(level, spec, pages, 4), list(lengths), x, tables),
                wanted(dtype, 4, 2, 32, lengths, window), f"window {window}")  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_pages_freed_behind_the_window_are_never_read(level: str) -> None:
    """Their table entries are the null page, whose NaN would show."""
    lengths = ((600, 40),)
    spec, pages, x, tables = case("bf16", 4, 2, 64, lengths, 32, 50)
    paged = native(level, spec, pages, 4)
    fill(paged, list(lengths), x, tables)
    first_visible = 600 - 50 + 1
    tables[0, : first_visible // 32] = 0
    found = paged.step(batch_of(list(lengths), tables), *x.step(list(lengths)))
    assert np.isfinite(found).all()
    assert_bits(found, wanted("bf16", 4, 2, 64, lengths, 50))


OPTIONS: dict[str, tuple[tuple[str, Any], ...]] = {
    "softcap": (("softcap", 20.0),),
    "sinks": (("sinks", (0.5, -3.0, 9.0, 100.0)),),
    "alibi": (("alibi", (0.5, 0.25, 0.0625, 0.0)),),
    "all": (("softcap", 7.0), ("sinks", (1.0, 2.0, -50.0, 0.0)), ("alibi", (1.0, 0.3, 0.01, 2.0)), ("scale", 0.37)),
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_softcap_sinks_and_alibi(dtype: str, name: str, level: str, option: str) -> None:
    lengths = ((0, 4), (520, 2))
    spec, pages, x, tables = case(dtype, 4, 2, 32, lengths)
    made = {k: np.array(v, np.float32) if isinstance(v, tuple) else v for k, v in OPTIONS[option]}
    found = last(native(level, spec, pages, 4, **made), list(lengths), x, tables)
    assert_bits(found, wanted(dtype, 4, 2, 32, lengths, 0, OPTIONS[option]), f"{name} {option}")
    assert not same_bits(found, wanted(dtype, 4, 2, 32, lengths)), f"{option} changes nothing"


@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_prefill_in_pieces_gives_the_bits_of_prefill_at_once(dtype: str, name: str, level: str, window: int) -> None:
    totals = [140, 67] if level == lowest() else [560, 67]
    tables, pages = tables_of(totals, 32)
    spec, x = kv_spec(dtype, 1, 32, 32, window), random_inputs(totals, 3, 1, 32)
    whole = run_whole(native(level, spec, pages, 3), totals, x, tables)
    for pieces in (1, 7, 64) if dtype == "bf16" else (7, 64):
        parts = run_whole(native(level, spec, pages, 3), totals, x, tables, pieces)
        for a, b in zip(parts, whole, strict=True):
            assert_bits(a, b, f"{dtype} in pieces of {pieces}")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_a_mixed_batch_gives_each_sequence_what_it_gets_alone(dtype: str, name: str, level: str, threads: int) -> None:
    lengths = [(0, 50), (513, 1), (100, 1), (31, 9), (0, 1), (540, 3)]
    spec, pages, x, tables = case(dtype, 6, 2, 64, tuple(lengths))
    together = last(native(level, spec, pages, 6, threads), lengths, x, tables)
    at = 0
    for s, (before, n) in enumerate(lengths):
        alone = Inputs([x.q[s]], [x.k[s]], [x.v[s]])
        y = last(native(level, spec, pages, 6), [(before, n)], alone, tables[s : s + 1])
        assert_bits(together[at : at + n], y, f"{dtype} sequence {s}")
        at += n
    assert at == len(together)


@pytest.mark.parametrize("level", LEVELS)
def test_a_sequence_without_tokens_in_the_step_is_passed_over(level: str) -> None:
    lengths = [(40, 0), (10, 2), (5, 0)]
    spec, pages, x, tables = case("bf16", 2, 1, 32, tuple(lengths))
    alone = Inputs([x.q[1]], [x.k[1]], [x.v[1]])
    found = last(native(level, spec, pages, 2), lengths, x, tables)
    assert_bits(found, last(native(level, spec, pages, 2), [(10, 2)], alone, tables[1:2]))


@pytest.mark.parametrize(("dtype", "name", "level"), typed("paged_attention", ("bf16", "int8", "fp8")))
def test_many_query_heads_on_one_key_head(dtype: str, name: str, level: str) -> None:
    """More heads than a tile has rows: they are spread over tiles."""
    lengths = ((40, 2),)
    spec, pages, x, tables = case(dtype, 71, 1, 64, lengths)
    found = last(native(level, spec, pages, 71, threads=2), list(lengths), x, tables)
    assert_bits(found, wanted(dtype, 71, 1, 64, lengths))


@pytest.mark.parametrize("level", LEVELS)
def test_nan_and_huge_values_stay_in_their_sequence(level: str) -> None:
    lengths = ((50, 2), (45, 2))
    spec, pages, x, tables = case("bf16", 2, 1, 32, lengths)
    clean = last(native(level, spec, pages, 2), list(lengths), x, tables)
    x.k[0][20], x.v[0][30] = 3e38, np.nan
    found = last(native(level, spec, pages, 2), list(lengths), x, tables)
    assert np.isnan(found[:2]).all()
    assert_bits(found[2:], clean[2:])


@pytest.mark.parametrize("level", LEVELS)
def test_one_visible_key_returns_its_value(level: str) -> None:
    spec, pages, x, tables = case("f32", 2, 2, 64, ((0, 1),))
    assert_bits(last(native(level, spec, pages, 2), [(0, 1)], x, tables), x.v[0])
