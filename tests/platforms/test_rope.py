"""Rotary tables: accuracy against rational arithmetic, and each kind against its plain formula."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.platforms.rope import MAX_ANGLE, cos_sin, frequencies, sin_cos
from octavo.platforms.types import Rope

PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862")


def exact_sin_cos(angle: float) -> tuple[Decimal, Decimal]:
    """Sine and cosine to 60 digits: reduction by 2 pi, then the power series."""
    with localcontext() as context:
        context.prec = 60
        r = Decimal(angle) % (2 * PI)
        total, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(80):
            total[n % 2] += term * (-1 if n % 4 >= 2 else 1)
            term = term * r / (n + 1)
        return total[1], total[0]


def test_sin_cos_is_within_two_units_of_float64() -> None:
    rng = np.random.default_rng(0)
    near = (np.arange(1, 60) * (math.pi / 4)).repeat(3) * np.tile([1 - 2.0**-40, 1, 1 + 2.0**-40], 59)
    far = np.floor(rng.uniform(0, MAX_ANGLE, 150)) * rng.choice([1.0, 0.75, 0.001], 150)
    angles = np.concatenate([[0.0, 1e-300, 1.0, MAX_ANGLE - 1], near, far])
    sin, cos = sin_cos(angles)
    for angle, s, c in zip(angles, sin, cos, strict=True):
        for got, want in zip((float(s), float(c)), exact_sin_cos(float(angle)), strict=True):
            # the reduction error is absolute (2^-70), which matters only where the result is nearly zero
            assert abs(Decimal(got) - want) <= 2 * Decimal(math.ulp(float(want))) + Decimal(2) ** -70


def test_tables_are_the_correctly_rounded_float32() -> None:
    rng = np.random.default_rng(1)
    rope = Rope(frequencies("default", {"rope_theta": 10000.0}, 64, max_len=1, max_positions=1)[0], 64)
    positions = np.unique(np.concatenate([np.arange(6), rng.integers(0, 2**20, 10), [2**20 - 1]]))
    cos, sin = cos_sin(rope, positions)
    assert cos.dtype == sin.dtype == np.float32 and cos.shape == (len(positions), 32)
    for i, position in enumerate(positions):
        for j, f in enumerate(rope.inv_freq):
            want_sin, want_cos = exact_sin_cos(float(position) * f)
            assert (float(sin[i, j]), float(cos[i, j])) == (np.float32(want_sin), np.float32(want_cos))


def test_attention_factor_multiplies_before_rounding() -> None:
    rope = Rope((1.0, 0.25), 4, attention_factor=1.3)
    cos, _ = cos_sin(rope, np.array([3]))
    assert cos[0].tolist() == [np.float32(math.cos(3.0) * 1.3), np.float32(math.cos(0.75) * 1.3)]


@pytest.mark.parametrize("bad", [-1, 2**20])
def test_positions_outside_the_exact_range_are_refused(bad: int) -> None:
    with pytest.raises(ModelError, match="rotary angles"):
        cos_sin(Rope((1.0,), 2), np.array([0, bad]))


THETA = 500000.0
DIM = 32
PLAIN = THETA ** (-np.arange(0, DIM, 2) / DIM)


def build(kind: str, max_len: int = 4096, max_positions: int = 4096, **params: Any) -> tuple[np.ndarray, float]:
    table = {"rope_theta": THETA, **params}
    values, factor = frequencies(kind, table, DIM, max_len=max_len, max_positions=max_positions)
    return np.array(values), factor


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-14) -> None:
    assert np.abs(got / want - 1).max() < tolerance


def test_default_linear_and_partial() -> None:
    values, factor = build("default")
    close(values, PLAIN)
    assert factor == 1.0 and values[0] == 1.0
    close(build("linear", factor=4.0)[0], PLAIN / 4)
    part, _ = frequencies("default", {"rope_theta": 100.0}, 8, max_len=1, max_positions=1)
    close(np.array(part), 100.0 ** (-np.arange(0, 8, 2) / 8))


def test_dynamic_stretches_theta_only_past_the_models_limit() -> None:
    close(build("dynamic", factor=2.0)[0], PLAIN)
    base = THETA * ((2.0 * 8192 / 4096) - 1.0) ** (DIM / (DIM - 2))
    close(build("dynamic", max_len=8192, factor=2.0)[0], base ** (-np.arange(0, DIM, 2) / DIM))


def test_ntk_stretches_theta_and_divides_or_divides_by_a_growing_power() -> None:
    place = np.arange(0, DIM, 2) / DIM
    close(build("ntk", factor=8.0)[0], (THETA * 8.0) ** -place / 8.0 ** (2 / DIM))
    mixed, factor = build("ntk", factor=8.0, mixed_b=0.6)
    close(mixed, PLAIN / np.exp(np.log(8.0) * (np.arange(1, DIM // 2 + 1) / (DIM // 2)) ** 0.6))
    assert factor == 1.0 and abs(mixed[-1] / PLAIN[-1] * 8.0 - 1) < 1e-14
    close(build("ntk", factor=1.0)[0], PLAIN)


def test_llama3_keeps_short_waves_and_divides_long_ones() -> None:
    low, high, factor, original = 1.0, 4.0, 8.0, 8192
    values, _ = build(
        "llama3",
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=original,
    )
    want = []
    for f in PLAIN:
        wave = 2 * math.pi / f
        if wave < original / high:
            want.append(f)
        elif wave > original / low:
            want.append(f / factor)
        else:
            smooth = (original / wave - low) / (high - low)
            want.append((1 - smooth) * f / factor + smooth * f)
    close(values, np.array(want), 1e-7)  # divisors are float32
    assert values[0] == 1.0 and values[-1] < PLAIN[-1] / 7.9


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_blends_by_rotations(truncate: bool) -> None:
    values, attention = build("yarn", factor=4.0, original_max_position_embeddings=1024, truncate=truncate)

    def correction(rotations: float) -> float:
        return DIM * math.log(1024 / (rotations * 2 * math.pi)) / (2 * math.log(THETA))

    low, high = correction(32), correction(1)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = np.clip((np.arange(DIM // 2) - max(low, 0)) / (min(high, DIM - 1) - max(low, 0)), 0, 1)
    close(values, PLAIN / 4 * ramp + PLAIN * (1 - ramp))
    assert attention == pytest.approx(0.1 * math.log(4.0) + 1, abs=1e-15)
    _, ratio = build("yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.5)
    assert ratio == pytest.approx((0.07 * math.log(4) + 1) / (0.05 * math.log(4) + 1), abs=1e-15)
    assert build("yarn", factor=4.0, attention_factor=1.25)[1] == 1.25


def test_longrope_chooses_its_factors_once_by_length() -> None:
    short, long = np.linspace(1, 2, DIM // 2), np.linspace(3, 9, DIM // 2)
    more = {"short_factor": short.tolist(), "long_factor": long.tolist(), "original_max_position_embeddings": 4096}
    near, attention = build("longrope", max_len=4096, max_positions=16384, **more)
    far, _ = build("longrope", max_len=4097, max_positions=16384, **more)
    close(near, PLAIN / short.astype(np.float32))
    close(far, PLAIN / long.astype(np.float32))
    assert attention == pytest.approx(math.sqrt(1 + math.log(4) / math.log(4096)), abs=1e-15)


def test_divisors_of_a_file_divide() -> None:
    divisors = np.linspace(1, 8, DIM // 2)
    close(build("divided", divisors=divisors)[0], PLAIN / divisors)


def test_bad_tables_are_named() -> None:
    with pytest.raises(ModelError, match="'spiral' is not served"):
        build("spiral")
    with pytest.raises(ModelError, match="low_freq_factor"):
        build("llama3", factor=2.0, original_max_position_embeddings=1)
    with pytest.raises(ModelError, match="takes 16"):
        build("divided", divisors=[1.0])
