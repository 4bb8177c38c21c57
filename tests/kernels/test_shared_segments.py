"""A sequence whose segments several threads share gives the bits of one thread, step after step, in any batch.

One program of two layers is recorded and run several times, as the engine does: counters and partial results are used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.kernels.kv_case import (
    Inputs,
    assert_bits,
    batch_of,
    eager,
    kv_spec,
    lowest,
    random_inputs,
    tables_of,
    typed,
)

from octavo.platforms.cpu.partials import partials_bytes
from octavo.platforms.platform import Capacity
from octavo.platforms.recorded import recorder
from octavo.platforms.recorded.recorder import Recorder

HEADS, KV_HEADS, DIM, MAX_LEN = 6, 2, 32, 4096
CASES = typed("paged_attention", ("bf16", "int8", "fp8"))
LONG = ((1500, 1), (40, 1), (2100, 1), (0, 1), (700, 3))
MIXED = ((0, 40), (1999, 1), (300, 20), (1023, 1), (1024, 2), (5, 0))


@dataclass
class Recorded:
    """The same two layers on one number of threads; `run` is one step."""

    program: Any
    y: np.ndarray
    team: Any
    step: Any
    held: list[Any]  # what the program reads, its own memory first

    def run(self) -> np.ndarray:
        self.y[:] = np.nan
        self.program.run(self.team, self.step, 0, len(self.program))
        return self.y.copy()


def record(
    ops: Any, threads: int, x: Inputs, lengths: tuple[tuple[int, int], ...], tables: np.ndarray, *,
    heads: int = HEADS, max_len: int = MAX_LEN, **options: Any,
) -> Recorded:  # fmt: skip
    batch = batch_of(lengths, tables)
    q = np.ascontiguousarray(x.step(list(lengths))[0])
    made = Recorder(ops.native, Capacity(max(len(q), 1), len(lengths), 1, max_len, 1), ops.spec, ops._rope, threads)
    given = made.external(q.ctypes.data, q.shape[1], q.shape[1], "tokens")
    for layer in (0, 1):
        out = made.paged_attention(given, layer=layer, heads=heads, scale=DIM**-0.5, **options)
    done = made.finish(out)
    start = (done.output_address - done.arena.address) // 4
    flat = np.frombuffer(done.arena, np.uint8).view(np.float32)[start : start + len(q) * out.stride]
    y = flat.reshape(len(q), out.stride)[:, : out.width]
    ops.begin(batch)
    team = ops.native.module.Team(threads, 100)
    return Recorded(done.program, y, team, ops._step(len(q)), [*done.held, q, batch, done.arena])


def prepared(
    level: str, dtype: str, lengths: tuple[tuple[int, int], ...], window: int = 0, block: int = 32, *,
    heads: int = HEADS, kv_heads: int = KV_HEADS, max_len: int = MAX_LEN,
) -> tuple[Any, Inputs, np.ndarray]:  # fmt: skip
    """Ops whose pages hold all tokens in both layers."""
    totals = [before + n for before, n in lengths]
    tables, pages = tables_of(totals, block)
    x = random_inputs(totals, heads, kv_heads, DIM)
    ops = eager(level, kv_spec(dtype, kv_heads, DIM, block, window), pages, max_len=max_len)
    ops.begin(batch_of([(0, n) for n in totals], tables))
    k, v = np.concatenate(x.k), np.concatenate(x.v)
    ops.kv_append(v, k, layer=0)
    ops.kv_append(k, v, layer=1)
    return ops, x, tables


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {
        "softcap": 9.0,
        "sinks": np.linspace(-2, 3, HEADS).astype(np.float32),
        "alibi": (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32),
    },
}


@pytest.mark.parametrize("lengths", [LONG, MIXED], ids=["long", "mixed"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_threads_that_share_a_sequence_change_nothing(
    dtype: str, name: str, level: str, options: str, lengths: tuple[tuple[int, int], ...]
) -> None:
    ops, x, tables = prepared(level, dtype, lengths)
    wanted = record(ops, 1, x, lengths, tables, **OPTIONS[options]).run()
    for threads in (2, 5):
        shared = record(ops, threads, x, lengths, tables, **OPTIONS[options])
        for step in range(3):
            assert_bits(shared.run(), wanted, f"{name}, {threads} threads, step {step}")


@pytest.mark.parametrize("window", [600, 1100])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_a_window_over_several_segments_is_shared_alike(dtype: str, name: str, level: str, window: int) -> None:
    lengths = ((1500, 1), (2047, 3), (100, 1))
    ops, x, tables = prepared(level, dtype, lengths, window, 64)
    wanted = record(ops, 1, x, lengths, tables).run()
    shared = record(ops, 3, x, lengths, tables)
    for step in range(2):
        assert_bits(shared.run(), wanted, f"{name}, window {window}, step {step}")


@cache
def long_context(level: str, dtype: str, threads: int) -> np.ndarray:
    length = 131072
    ops, x, tables = prepared(level, dtype, ((length - 1, 1),), block=64, heads=2, kv_heads=1, max_len=length)
    return record(ops, threads, x, ((length - 1, 1),), tables, heads=2, max_len=length).run()


@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_a_context_of_128k_has_the_same_bits_at_every_level(dtype: str, name: str, level: str) -> None:
    assert np.isfinite(long_context(lowest(), dtype, 1)).all()
    assert_bits(long_context(level, dtype, 3), long_context(lowest(), dtype, 1), name)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_a_sequence_that_finds_no_memory_is_not_shared(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ops, x, tables = prepared(lowest(), "bf16", LONG)
    wanted = record(ops, 1, x, LONG, tables).run()
    monkeypatch.setattr(recorder, "partials_bytes", lambda *a, **k: int(partials_bytes(*a, **k) * share) // 4 * 4)
    assert_bits(record(ops, 4, x, LONG, tables).run(), wanted)


def test_counters_are_zero_again_after_every_step() -> None:
    ops, x, tables = prepared(lowest(), "bf16", LONG)
    shared = record(ops, 2, x, LONG, tables)
    (counters,) = [held for held in shared.held if getattr(held, "bytes", 0) == 4 * len(LONG) * HEADS]
    shared.run()
    assert not np.frombuffer(counters, np.int32).any()
