"""The float32 helpers against exact rational arithmetic and float64 functions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.platforms.reference import f32

TINY = 2.0**-126
NORMAL = st.integers(0, 2**32 - 1).map(lambda u: np.array(u, np.uint32).view(np.float32)).filter(np.isfinite)


def bits(x: object) -> np.ndarray:
    return np.atleast_1d(np.asarray(x, np.float32)).view(np.uint32)


def one(x: object) -> np.ndarray:
    return np.atleast_1d(np.asarray(x, np.float32))


def round_once(value: Fraction) -> float:
    """The float32 nearest to `value`, ties to even, magnitudes under 2^-126 to zero, by integer arithmetic."""
    if value == 0:
        return 0.0
    sign, value = (-1.0 if value < 0 else 1.0), abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if value < Fraction(2) ** exponent:
        exponent -= 1
    scaled = value / Fraction(2) ** (exponent - 23)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    if twice > scaled.denominator or (twice == scaled.denominator and whole % 2):
        whole += 1
    result = Fraction(whole) * Fraction(2) ** (exponent - 23)
    if result >= Fraction(2) ** 128:
        return sign * math.inf
    return sign * (float(result) if result >= Fraction(TINY) else 0.0)


def exact_fma(a: np.float32, b: np.float32, c: np.float32) -> float:
    return round_once(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


@settings(max_examples=300, deadline=None)
@given(NORMAL, NORMAL, NORMAL)
def test_fma32_rounds_any_bits_once(a: np.float32, b: np.float32, c: np.float32) -> None:
    a, b, c = (f32.flush(one(v))[0] for v in (a, b, c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if abs(abs(exact) - Fraction(TINY)) < Fraction(2) ** -149:
        return  # outside the contract
    assert float(f32.fma32(one(a), one(b), one(c))[0]) == exact_fma(a, b, c)


def test_fma32_rounds_once_where_the_float64_sum_is_a_tie() -> None:
    rng = np.random.default_rng(1)
    k = rng.integers(1, 2**11, 4000) * 2 + 1
    a = (1 + k * 2.0**-23).astype(np.float32)
    tail = (rng.choice([-1.0, 1.0], 4000) * 2.0 ** rng.integers(-60, -30, 4000)).astype(np.float32)
    # a + 2^-24 is a float32 tie; the tail decides, and is too small for the float64 sum
    b, c = np.full(4000, 1 + 2.0**-23, np.float32), np.zeros(4000, np.float32)
    half = np.full(4000, 2.0**-24, np.float32)
    for x, y, z in ((a, b, tail), (half, np.ones(4000, np.float32), a), (tail, half * 2, a), (a, a, -a), (a, b, c)):
        got = f32.fma32(x, y, z)
        want = [exact_fma(*values) for values in zip(x, y, z, strict=True)]
        assert np.array_equal(got, np.array(want, np.float32))
    far = np.array([1 + 2.0**-12], np.float32)  # far * far = 1 + 2^-11 + 2^-24, a tie
    for shift in (2.0**-80, -(2.0**-80)):
        assert float(f32.fma32(far, far, one(shift))[0]) == exact_fma(far[0], far[0], np.float32(shift))
    assert f32.fma32(far, far, one(2.0**-80))[0] != f32.fma32(far, far, one(-(2.0**-80)))[0]


def test_fma32_special_values() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert np.isnan(f32.fma32(one(inf), one(0), one(1)))[0]
    assert np.isnan(f32.fma32(one(inf), one(1), one(-inf)))[0]
    assert np.isnan(f32.fma32(one(np.uint32(0x7FC00001).view(np.float32)), one(1), one(nan)))[0]
    assert f32.fma32(one(3e38), one(2), one(-3e38))[0] == np.float32(3e38)
    assert f32.fma32(one(3e38), one(3), one(1))[0] == inf
    assert bits(f32.fma32(one(-1e-30), one(1e-30), one(0)))[0] == 0x80000000  # flushed, the sign kept
    assert bits(f32.fma32(one(1), one(0), one(-0.0)))[0] == 0


def test_flush_and_bf16_rounding() -> None:
    u = np.array([1, 0x80000001, 0x007FFFFF, 0x00800000, 0, 0x80000000, 0x7F800000, 0x7FC00000], np.uint32)
    assert bits(f32.flush(u.view(np.float32))).tolist() == [0, 0x80000000, 0, *u[3:].tolist()]
    cases = {
        0x3F800000: 0x3F80,
        0x3F808000: 0x3F80,  # tie, even below
        0x3F818000: 0x3F82,  # tie, even above
        0x3F808001: 0x3F81,
        0x007FFFFF: 0x0000,
        0x807FFFFF: 0x8000,
        0x00800000: 0x0080,
        0x7F7FFFFF: 0x7F80,
        0x7F800001: 0x7FC0,
        0xFFFFFFFF: 0xFFFF,
    }
    got = f32.bf16_bits(np.array(list(cases), np.uint32).view(np.float32))
    assert got.tolist() == list(cases.values())


def test_sum16_is_sixteen_lanes_and_a_tree() -> None:
    rng = np.random.default_rng(2)
    for n in (0, 1, 15, 16, 17, 100):
        x = rng.standard_normal(n).astype(np.float32)
        lanes = [np.float32(0)] * 16
        for i, value in enumerate(x):
            lanes[i % 16] = np.float32(lanes[i % 16] + value)
        for half in (8, 4, 2, 1):
            lanes = [np.float32(lanes[i] + lanes[i + half]) for i in range(half)]
        assert bits(f32.sum16(x[None]))[0] == bits(lanes[0])[0]


def sweep(low: float, high: float) -> np.ndarray:
    """Float32 of every exponent (a strided walk over the bit patterns) and a dense range."""
    walk = np.arange(0x00800000, 0x7F800000, 16411, dtype=np.uint32).view(np.float32)
    dense = np.random.default_rng(3).uniform(low, high, 200_000).astype(np.float32)
    return np.concatenate([walk, -walk, dense])


def errors_ulp(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    size = np.abs(want).astype(np.float64)
    inside = (size >= TINY) & (size <= 3.4028234e38)
    unit = np.spacing(np.where(inside, size, 1).astype(np.float32)).astype(np.float64)
    return np.abs(np.where(inside, got, 0).astype(np.float64) - np.where(inside, want, 0)) / unit


EXACT = {
    "exp": (np.exp, -88.0, 89.0, 1.0),
    "tanh": (np.tanh, -10.0, 10.0, 1.5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -20.0, 20.0, 2.5),
    "erf": (np.vectorize(math.erf), -4.5, 4.5, 1.5),
}


@pytest.mark.parametrize("name", list(EXACT))
def test_function_is_within_its_bound(name: str) -> None:
    exact, low, high, bound = EXACT[name]
    x = sweep(low, high)
    with np.errstate(over="ignore", under="ignore"):
        want = exact(x.astype(np.float64))
    got = getattr(f32, name)(x)
    assert not np.isnan(got).any()
    assert errors_ulp(got, want).max() <= bound
    assert (got[np.abs(want) < TINY * (1 - 2.0**-20)] == 0).all()


def test_log_is_within_its_bound() -> None:
    x = np.abs(sweep(0.4, 2.5))
    assert errors_ulp(f32.log(x), np.log(x.astype(np.float64))).max() <= 1.0


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_activation_error_is_a_fraction_of_its_input(name: str) -> None:
    x = np.random.default_rng(4).uniform(-30, 30, 50_000).astype(np.float32)
    wide = x.astype(np.float64)
    if name == "silu":
        want = wide / (1 + np.exp(-wide))
    elif name == "gelu":
        want = np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in wide])
    else:
        want = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    error = np.abs(getattr(f32, name)(x).astype(np.float64) - want)
    assert (error <= 2.0 * np.spacing(np.abs(x))).all()


def test_functions_at_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40], np.float32)
    want = {
        "exp": [np.nan, np.inf, 0, 1, 1, 1, 1],
        "log": [np.nan, np.inf, np.nan, -np.inf, -np.inf, -np.inf, -np.inf],
        "tanh": [np.nan, 1, -1, 0.0, -0.0, 0.0, -0.0],
        "sigmoid": [np.nan, 1, 0, 0.5, 0.5, 0.5, 0.5],
        "erf": [np.nan, 1, -1, 0.0, -0.0, 0.0, -0.0],
        "silu": [np.nan, np.inf, np.nan, 0.0, -0.0, 0.0, -0.0],
        "gelu": [np.nan, np.inf, np.nan, 0.0, 0.0, 0.0, 0.0],
        "gelu_tanh": [np.nan, np.inf, np.nan, 0.0, 0.0, 0.0, 0.0],
    }
    for name, values in want.items():
        got = getattr(f32, name)(x)
        assert np.array_equal(np.isnan(got), np.isnan(values)), name
        keep = ~np.isnan(got)
        assert bits(got)[keep].tolist() == bits(values)[keep].tolist(), name


def test_exp_edges() -> None:
    low, high = f32.EXP_MIN, f32.EXP_MAX
    below, above = np.nextafter(low, np.float32(-100)), np.nextafter(high, np.float32(100))
    y = f32.exp(np.array([below, low, high, above], np.float32))
    assert y[0] == 0 and y[1] >= TINY and np.isfinite(y[2]) and np.isposinf(y[3])


def test_exp_is_monotonic_around_every_reduction_step() -> None:
    centre = ((np.arange(-120, 120) + 0.5) * math.log(2)).astype(np.float32)
    x = (centre.view(np.int32)[:, None] + np.arange(-8, 9, dtype=np.int32)).view(np.float32)
    x = np.sort(x, axis=1)
    assert (np.diff(f32.exp(x).astype(np.float64), axis=1) >= 0).all()
