"""The compiled scalar functions and `fma` have the reference's bits over every exponent, denormals, edges and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from octavo.platforms.reference import f32
from octavo.platforms.registry import PLATFORMS

if why := next(e for e in PLATFORMS if e.name == "portable").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.portable import functions, jit


def inputs() -> np.ndarray:
    """Every 65,003rd bit pattern, dense ranges, the edges of exp."""
    walk = np.arange(0, 2**32, 65003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(5)
    dense = [rng.uniform(-limit, limit, 30_000).astype(np.float32) for limit in (1.0, 5.0, 100.0)]
    edge = (np.array([f32.EXP_MIN, f32.EXP_MAX]).view(np.int32)[:, None] + np.arange(-3, 4)).astype(np.int32).ravel()
    return np.concatenate([walk, *dense, edge.view(np.float32), np.array([0.0, -0.0, np.inf, -np.inf], np.float32)])


def same_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))


@jit.kernel
def each_exp(x: Any, y: Any) -> None:
    for i in range(len(x)):
        y[i] = functions.exp(x[i])


@jit.kernel
def each_fma(a: Any, b: Any, c: Any, y: Any) -> None:
    for i in range(len(a)):
        y[i] = jit.flush(jit.fma(a[i], b[i], c[i]))


@jit.kernel
def each_bf16(x: Any, y: Any) -> None:
    for i in range(len(x)):
        y[i] = jit.round_bf16(jit.flush(x[i]))


def test_exp() -> None:
    x = inputs()
    y = np.empty_like(x)
    each_exp(x, y)
    assert same_bits(y, f32.exp(x)).all()


@pytest.mark.parametrize("name", functions.ACTIVATIONS[1:])
def test_activation(name: str) -> None:
    x = inputs()
    y = x[None].copy()
    functions.activate(y, functions.ACTIVATIONS.index(name))
    relu: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "relu": lambda v: np.where(v > 0, f32.flush(v), np.float32(0)),
        "relu2": lambda v: np.where(v > 0, f32.mul(v, v), np.float32(0)),
    }
    want = relu[name](x) if name in relu else getattr(f32, name)(x)
    same = same_bits(y[0], want)
    assert same.all(), f"{(~same).sum()} of {x.size} differ, first at {x[~same][0].item().hex()}"


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(6)
    n = 80_000
    a, b, c = (np.ldexp(rng.integers(-(2**24), 2**24, n), rng.integers(-60, 20, n)).astype(np.float32) for _ in "abc")
    c[::2] = -(a * b)[::2]
    y = np.empty_like(a)
    each_fma(a, b, c, y)
    assert same_bits(y, f32.fma32(a, b, c)).all()


def test_bf16_rounds_half_to_even() -> None:
    x = inputs()
    y = np.empty_like(x)
    each_bf16(x, y)
    assert same_bits(y, f32.to_bf16(x)).all()
