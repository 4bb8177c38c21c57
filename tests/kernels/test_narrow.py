"""What is written as bfloat16 at once has the bits of rows that are prepared afterwards, at every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases.common import stored
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels

from octavo.platforms.cpu.narrowing import CpuRecorder
from octavo.platforms.cpu.weights import PackedWeights
from octavo.platforms.recorded.recorder import Recorder

WIDTH, HIDDEN, HEADS = 64, 96, 2
LEVELS = list({p.id: p for op in ("linear_bf16", "linear_q8g32", "linear_f32") for p in levels(op)}.values())
#: formats with kernels of their own
MAKERS = ("bf16", "f32", "f16", "q8_0", "q4_0", "q6_k", "q4_k", "q2_k")


def rows_of(count: int, width: int, seed: int) -> np.ndarray:
    x: np.ndarray = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return x


def weight(ops: Any, n: int, k: int, seed: int, name: str = "bf16") -> Any:
    bias = stored("bias", rows_of(1, n, 7)[0])
    return PackedWeights(ops.native, ops.team).linear([stored("w", rows_of(n, k, seed), name)], bias)


def both_ways(ops: Any, calls: Any, *arrays: np.ndarray) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    """(kernels apart, kernels joined, what they give apart, what joined)."""
    out: list[Any] = []
    for recorder in (Recorder, CpuRecorder):
        ops.recorder, ops.ran = recorder, []
        out += [ops.together(calls, *arrays), [name.partition("__")[0] for name in ops.ran]]
    return out[1], out[3], out[0], out[2]


def assert_joined(found: tuple[list[str], list[str], np.ndarray, np.ndarray], num_left: int, what: str) -> None:
    apart, joined, wanted, made = found
    assert joined == [op for at, op in enumerate(apart) if op != "prepare_bf16" or at in kept_places(apart, num_left)]
    assert_bits(made, wanted, what)
    assert np.isfinite(wanted).any()


def kept_places(apart: list[str], num_left: int) -> list[int]:
    """Those of given rows, which come first."""
    return [at for at, op in enumerate(apart) if op == "prepare_bf16"][:num_left]


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_product_writes_what_the_next_one_reads(level: str, maker: str, rows: int) -> None:
    ops = eager(level, threads=2)
    k = 256 if maker.endswith("_k") else WIDTH
    up, down = weight(ops, HIDDEN, k, 1, maker), weight(ops, 48, HIDDEN, 2)
    x = rows_of(rows, k, rows)
    for more in ({}, {"activation": "gelu"}, {"activation": "silu", "scale": 0.5}):
        found = both_ways(ops, lambda o, x, more=more: o.linear(o.linear(x, up, **more), down), x)
        assert_joined(found, int(maker == "bf16"), f"{level} {maker} {rows} {more}")


@pytest.mark.parametrize("level", levels("linear_bf16"))
def test_a_gated_product_and_rows_of_extremes_keep_their_bits(level: str) -> None:
    ops = eager(level)
    gate, up, down = (weight(ops, *shape, seed) for seed, shape in enumerate([(HIDDEN, WIDTH)] * 2 + [(WIDTH, HIDDEN)]))
    x = rows_of(7, WIDTH, 3)
    x[0], x[1, 3], x[2, 5], x[3], x[4] = 0, np.inf, np.nan, 1e-39, 3e38
    x[5] *= np.float32(1e-36)
    found = both_ways(ops, lambda o, x: o.gated_mlp(x, gate, up, down, "silu", residual=x), x)
    assert_joined(found, 1, level)


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("level", levels("layer_norm"))
def test_a_norm_writes_its_rows_and_their_bfloat16(level: str, norm: str) -> None:
    """Rows that a product alone reads are not written at all."""
    ops = eager(level, threads=2)
    to, vector = weight(ops, WIDTH, WIDTH, 4), rows_of(1, WIDTH, 5)[0]
    x = rows_of(33, WIDTH, 6)
    x[1, 3], x[2] = np.nan, 1e-30

    def normed(o: Any, x: Any) -> Any:
        return o.rms_norm(x, vector, 1e-6) if norm == "rms_norm" else o.layer_norm(x, vector, vector, 1e-6)

    assert_joined(both_ways(ops, lambda o, x: o.linear(normed(o, x), to), x), 0, "alone")

    def twice(o: Any, x: Any) -> Any:
        y = normed(o, x)
        return o.linear(y, to, residual=y)

    assert_joined(both_ways(ops, twice, x), 0, "beside its rows")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("level", levels("varlen_attention"))
def test_attention_writes_what_its_product_reads(level: str, dtype: str) -> None:
    ops = eager(level, threads=2)
    lengths = (3, 70, 1)
    ops.begin(batch_of([(0, n) for n in lengths], np.zeros((len(lengths), 1), np.int32)))
    for dim in (32, 48):
        to, x = weight(ops, WIDTH, HEADS * dim, dim), [rows_of(sum(lengths), HEADS * dim, seed) for seed in range(3)]

        def calls(o: Any, q: Any, k: Any, v: Any, to: Any = to, dim: int = dim) -> Any:
            return o.linear(o.varlen_attention(q, k, v, heads=HEADS, kv_heads=HEADS, scale=dim**-0.5, dtype=dtype), to)

        assert_joined(both_ways(ops, calls, *x), 0, f"{level} {dim}")


def test_rows_that_others_read_or_that_end_between_32s_are_prepared_apart() -> None:
    ops = eager("scalar" if "scalar" in [p.values[0] for p in levels("linear_bf16")] else "neon")
    x = rows_of(4, WIDTH, 8)
    for n, is_read_twice in ((48, False), (HIDDEN, True)):
        up, down = weight(ops, n, WIDTH, 1), weight(ops, n, n, 2)

        def calls(o: Any, x: Any, up: Any = up, down: Any = down, twice: bool = is_read_twice) -> Any:
            y = o.linear(x, up)
            return o.linear(y, down, residual=y if twice else None)

        apart, joined, wanted, made = both_ways(ops, calls, x)
        assert apart == joined and apart.count("prepare_bf16") == 2
        assert_bits(made, wanted)
