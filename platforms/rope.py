"""Rotary tables: inverse frequencies of every kind, and float32 cosines and sines with the same bits on every machine.

Libm and numpy's vendor routines differ between machines in the last bit, so neither is used. Frequencies are computed
with the decimal module (correctly rounded, written in portable C) to 50 digits and rounded once to float64. Angles are
position * inv_freq, one float64 product. Sine and cosine are float64 add and multiply only: Cody-Waite reduction by
pi / 2 in three parts of 33 bits (exact products up to |angle| = 2^20), then Taylor polynomials on [-pi/4, pi/4]; the
result times `attention_factor` is rounded once to float32. Error: under 2 units in the last place of float64.

Sources: Su et al. 2021 (RoPE); Peng et al. 2023 (NTK, YaRN); Ding et al. 2024 (LongRoPE); Llama 3.1's published
scaling; the meaning of parameters is that of `rope_parameters` in Hugging Face transformers 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError
from octavo.platforms.types import Rope

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

MAX_ANGLE = 2.0**20
"""Where the reduction stops being exact; the first inv_freq is 1 for nearly all kinds: a limit on positions."""

_CONTEXT = Context(prec=50)
_PI = Decimal("3.14159265358979323846264338327950288419716939937511")
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_HALF_PI_PARTS = tuple(float.fromhex(h) for h in ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69"))
_SIN = tuple((-1) ** i / factorial(2 * i + 1) for i in range(9, 0, -1))
_COS = tuple((-1) ** i / factorial(2 * i) for i in range(9, 1, -1))


# -- tables ------------------------------------------------------------------------------------------------------------


def cos_sin(rope: Rope, positions: NDArray[Any]) -> tuple[F32, F32]:
    """(cos, sin), both float32 [len(positions), rotary_dim / 2], attention_factor included.

    ModelError for angles outside [0, 2^20), where the reduction stops being exact.
    """
    angle = np.multiply.outer(np.asarray(positions, np.float64), np.asarray(rope.inv_freq, np.float64))
    if angle.size and not (angle.min() >= 0 and angle.max() < MAX_ANGLE):
        raise ModelError(f"rotary angles lie in [0, 2^20); got {angle.min():.1f} to {angle.max():.1f}")
    sin, cos = sin_cos(angle)
    factor = np.float64(rope.attention_factor)
    return (cos * factor).astype(np.float32), (sin * factor).astype(np.float32)


def sin_cos(angle: F64) -> tuple[F64, F64]:
    """(sin, cos) of float64 angles, |angle| <= 2^20, from add, subtract, multiply and round-to-nearest only."""
    turns = np.rint(angle * _TWO_OVER_PI)
    r = angle
    for part in _HALF_PI_PARTS:
        r = r - turns * part
    z = r * r
    sin = np.full_like(z, _SIN[0])
    for c in _SIN[1:]:
        sin = sin * z + c
    sin = r + (r * z) * sin
    cos = np.full_like(z, _COS[0])
    for c in _COS[1:]:
        cos = cos * z + c
    cos = 1.0 - (0.5 * z - (z * z) * cos)
    quarter = turns.astype(np.int64) & 3
    swapped = (quarter & 1).astype(bool)
    sine, cosine = np.where(swapped, cos, sin), np.where(swapped, sin, cos)
    return np.where(quarter >= 2, -sine, sine), np.where((quarter == 1) | (quarter == 2), -cosine, cosine)


# -- frequencies -------------------------------------------------------------------------------------------------------


def frequencies(
    kind: str, params: Mapping[str, Any], dim: int, *, max_len: int, max_positions: int
) -> tuple[tuple[float, ...], float]:
    """(inverse frequencies, float64 [dim / 2]; attention factor) of a parameter table.

    `params` holds `rope_theta` and the kind's own keys, as in `rope_parameters`. `max_positions` is the model's limit,
    `max_len` the tokens that will be served: dynamic and longrope choose by it, once per model. `divided` (GGUF
    `rope_freqs.weight`) divides by given `divisors`. ModelError for an unknown kind.
    """
    build = _KINDS.get(kind)
    if build is None:
        raise ModelError(f"rope kind {kind!r} is not served; served are {', '.join(_KINDS)}")
    with localcontext(_CONTEXT):
        values, factor = build(_Table(params, dim, max_len, max_positions))
        return tuple(float(value) for value in values), float(factor)


class _Table:
    """A parameter table with decimal access; `plain` are the unscaled frequencies theta^(-2i / dim)."""

    def __init__(self, params: Mapping[str, Any], dim: int, max_len: int, max_positions: int) -> None:
        self.params, self.dim, self.max_len, self.max_positions = params, dim, max_len, max_positions
        self.theta = self.number("rope_theta")
        self.original = self.number("original_max_position_embeddings", max_positions)

    def number(self, key: str, default: float | None = None) -> Decimal:
        value = self.params.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"rope parameters lack {key!r}: {dict(self.params)}")
        return Decimal(float(value))

    def plain(self, theta: Decimal | None = None) -> list[Decimal]:
        log = (self.theta if theta is None else theta).ln()
        return [(-log * 2 * i / self.dim).exp() for i in range(self.dim // 2)]

    @property
    def factor(self) -> Decimal:
        return self.number("factor", float(self.max_positions / self.original))


_Result = tuple[list[Decimal], Decimal]
_ONE = Decimal(1)


def _default(t: _Table) -> _Result:
    return t.plain(), _ONE


def _linear(t: _Table) -> _Result:
    return [f / t.number("factor") for f in t.plain()], _ONE


def _dynamic(t: _Table) -> _Result:
    factor, limit = t.number("factor"), Decimal(t.max_positions)
    length = max(Decimal(t.max_len), limit)
    stretch = factor * length / limit - (factor - 1)
    return t.plain(t.theta * (stretch.ln() * t.dim / (t.dim - 2)).exp()), _ONE


def _ntk(t: _Table) -> _Result:
    """Fixed: a base `factor` times as large, and every frequency divided by factor^(2 / dim). Mixed, by an exponent `mixed_b`:
    divided by exp(a (i + 1)^b), where the last divisor is the factor. Neither depends on a text's length."""
    factor, half = t.number("factor"), t.dim // 2
    if factor <= 1:
        return t.plain(), _ONE
    if t.params.get("mixed_b") is None:
        return [f / (factor.ln() * 2 / t.dim).exp() for f in t.plain(t.theta * factor)], _ONE
    power = t.number("mixed_b")
    logs = [factor.ln() * ((Decimal(i + 1) / half).ln() * power).exp() for i in range(half)]
    return [f / log.exp() for f, log in zip(t.plain(), logs, strict=True)], _ONE


def _divided(t: _Table) -> _Result:
    divisors = [Decimal(float(d)) for d in t.params["divisors"]]
    if len(divisors) != t.dim // 2:
        raise ModelError(f"rope divisors: {len(divisors)} given, a rotary width of {t.dim} takes {t.dim // 2}")
    return [f / d for f, d in zip(t.plain(), divisors, strict=True)], _ONE


def _llama3(t: _Table) -> _Result:
    """Divisors are rounded to float32, as the GGUF conversion of such a model stores them: both files, same bits."""
    low, high, factor = t.number("low_freq_factor"), t.number("high_freq_factor"), t.number("factor")
    out = []
    for f in t.plain():
        smooth = (t.original * f / (2 * _PI) - low) / (high - low)
        smooth = min(max(smooth, Decimal(0)), _ONE)
        divisor = _ONE / ((1 - smooth) / factor + smooth)
        out.append(f / Decimal(float(np.float32(float(divisor)))))
    return out, _ONE


def _yarn(t: _Table) -> _Result:
    factor = t.factor

    def mscale(weight: Decimal = _ONE) -> Decimal:
        return weight * factor.ln() / 10 + 1 if factor > 1 else _ONE

    def correction(rotations: Decimal) -> Decimal:
        return t.dim * (t.original / (rotations * 2 * _PI)).ln() / (2 * t.theta.ln())

    if t.params.get("attention_factor") is not None:
        attention = t.number("attention_factor")
    elif t.params.get("mscale") and t.params.get("mscale_all_dim"):
        attention = mscale(t.number("mscale")) / mscale(t.number("mscale_all_dim"))
    else:
        attention = mscale()
    low = correction(Decimal(float(t.params.get("beta_fast") or 32)))
    high = correction(Decimal(float(t.params.get("beta_slow") or 1)))
    if t.params.get("truncate", True):
        low = low.to_integral_value(ROUND_FLOOR)
        high = high.to_integral_value(ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(t.dim - 1))
    if low == high:
        high += Decimal("0.001")
    out = []
    for i, f in enumerate(t.plain()):
        ramp = min(max((i - low) / (high - low), Decimal(0)), _ONE)
        out.append(f / factor * ramp + f * (1 - ramp))
    return out, attention


def _longrope(t: _Table) -> _Result:
    name = "long_factor" if Decimal(t.max_len) > t.original else "short_factor"
    divisors = [Decimal(float(np.float32(x))) for x in t.params[name]]
    if len(divisors) != t.dim // 2:
        raise ModelError(f"rope {name}: {len(divisors)} values, a rotary width of {t.dim} takes {t.dim // 2}")
    if t.params.get("attention_factor") is not None:
        attention = t.number("attention_factor")
    else:
        attention = (1 + t.factor.ln() / t.original.ln()).sqrt() if t.factor > 1 else _ONE
    return [f / d for f, d in zip(t.plain(), divisors, strict=True)], attention


_KINDS: dict[str, Callable[[_Table], _Result]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "ntk": _ntk,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
    "divided": _divided,
}
