"""Float32 arithmetic with the contract's bits, and our own transcendental functions.

Everything is built from float32 add, multiply, fma, divide, square root, integer operations on the bits, compares and
selects, each rounded to nearest even, with denormals read and written as signed zeros. No libm, no numpy
transcendental: numpy's are vendor routines and change between machines. `docs/numerics.md` holds the same algorithms as
pseudo-code; `csrc_common/vec/math.inl.h` is their C++ twin, operation by operation.

Arrays are numpy float32 with at least one dimension; shapes broadcast. Sources: fma by round to odd (Boldo & Melquiond
2008); two-sum (Knuth); argument reduction after Cody & Waite 1980; polynomials are weighted minimax fits of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Operand = NDArray[np.float32] | np.float32

TINY = np.float32(2.0**-126)
INF = np.float32(np.inf)
P = ParamSpec("P")
R = TypeVar("R")


def _quiet(function: Callable[P, R]) -> Callable[P, R]:
    """Without numpy's warnings on overflow and NaN. A new context per call: numpy 1's own decorator does not nest."""

    @wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return quiet


def _hex(*texts: str) -> tuple[np.float32, ...]:
    return tuple(np.float32(float.fromhex(text)) for text in texts)


# -- rounding ----------------------------------------------------------------------------------------------------------


@_quiet
def flush(x: F32) -> F32:
    """Denormals to zero of the same sign (FTZ on results, DAZ on operands); all else, NaN included, unchanged."""
    tiny = np.abs(x) < TINY
    return np.where(tiny, np.copysign(np.float32(0), x), x) if tiny.any() else x


@_quiet
def add(a: Operand, b: Operand) -> F32:
    return flush(np.add(a, b, dtype=np.float32))


@_quiet
def sub(a: Operand, b: Operand) -> F32:
    return flush(np.subtract(a, b, dtype=np.float32))


@_quiet
def mul(a: Operand, b: Operand) -> F32:
    return flush(np.multiply(a, b, dtype=np.float32))


@_quiet
def div(a: Operand, b: Operand) -> F32:
    return flush(np.divide(a, b, dtype=np.float32))


@_quiet
def sqrt(x: F32) -> F32:
    return np.sqrt(x, dtype=np.float32)


@_quiet
def fma32(a: Operand, b: Operand, c: Operand) -> F32:
    """a * b + c rounded once. The float64 product is exact; the float64 sum is rounded to odd, then to float32.

    Rounding twice differs from rounding once only where the float64 sum lies exactly halfway between two float32, so
    the two-sum error is looked at only there: the sum moves one unit towards the exact value, off the tie.
    """
    product: F64 = np.multiply(a, b, dtype=np.float64)
    total: F64 = np.add(product, c, dtype=np.float64)
    tie = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if tie.any():
        total = _off_tie(product, np.broadcast_to(c, total.shape), total, tie & np.isfinite(total))
    return flush(total.astype(np.float32))


def _off_tie(product: F64, c: F32, total: F64, tie: NDArray[np.bool_]) -> F64:
    p, t, addend = product[tie], total[tie], c[tie].astype(np.float64)
    part = t - p
    error = (p - (t - part)) + (addend - part)
    step = np.where(error == 0, 0, np.where((error > 0) == (t > 0), 1, -1))
    total = total.copy()
    total[tie] = (t.view(np.int64) + step).view(np.float64)
    return total


def bf16_bits(x: F32) -> NDArray[np.uint16]:
    """Float32 to bfloat16 bits: half to even, |x| < 2^-126 to signed zero, NaN to quiet NaN, overflow to infinity."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (u + np.uint32(0x7FFF) + ((u >> 16) & np.uint32(1))) >> 16
    magnitude = u & np.uint32(0x7FFFFFFF)
    rounded = np.where(magnitude < 0x00800000, (u >> 16) & np.uint32(0x8000), rounded)
    return np.asarray(np.where(magnitude > 0x7F800000, (u >> 16) | np.uint32(0x40), rounded), np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> F32:
    """Bfloat16 bits to float32, exactly (denormals keep their bits; operands are flushed by the ops that read them)."""
    wide: F32 = (np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def to_bf16(x: F32) -> F32:
    """`x` rounded to bfloat16, as float32."""
    return from_bf16(bf16_bits(x))


@_quiet
def to_f16(x: F32) -> NDArray[np.float16]:
    """Float32 to float16: half to even, denormals kept, overflow to infinity."""
    return np.asarray(x, np.float32).astype(np.float16)


# -- sums --------------------------------------------------------------------------------------------------------------


def tree16(lanes: F32) -> F32:
    """[..., 16] -> [...]: v[i] += v[i + half] for half = 8, 4, 2, 1."""
    for half in (8, 4, 2, 1):
        lanes = add(lanes[..., :half], lanes[..., half : 2 * half])
    return lanes[..., 0]


def _lanes(x: F32) -> F32:
    """[..., n] -> [..., ceil(n / 16), 16], padded with +0 (adding +0 to a lane that began at +0 changes no bit)."""
    pad = -x.shape[-1] % 16
    if pad:
        x = np.concatenate([x, np.zeros((*x.shape[:-1], pad), np.float32)], axis=-1)
    return x.reshape(*x.shape[:-1], x.shape[-1] // 16, 16)


def sum16(x: F32) -> F32:
    """[..., n] -> [...]: lane j takes values j, j + 16, ... in order from +0, then tree16. n = 0 gives +0."""
    steps = _lanes(flush(x))
    lanes = np.zeros((*steps.shape[:-2], 16), np.float32)
    for i in range(steps.shape[-2]):
        lanes = add(lanes, steps[..., i, :])
    return tree16(lanes)


def sum16_squares(x: F32) -> F32:
    """[..., n] -> [...]: as sum16 with lane = fma(x, x, lane)."""
    steps = _lanes(flush(x))
    lanes = np.zeros((*steps.shape[:-2], 16), np.float32)
    for i in range(steps.shape[-2]):
        lanes = fma32(steps[..., i, :], steps[..., i, :], lanes)
    return tree16(lanes)


# -- functions ---------------------------------------------------------------------------------------------------------

_MAGIC, _LOG2E, _LN2_HI, _LN2_LO = _hex("0x1.8p+23", "0x1.715476p+0", "0x1.62e400p-1", "0x1.7f7d1cp-20")
EXP_MIN, EXP_MAX = _hex("-0x1.5d589ep+6", "0x1.62e42ep+6")
_EXP = _hex("0x1.6dbc4ap-10", "0x1.124136p-7", "0x1.555454p-5", "0x1.555488p-3", "0x1.0p-1")
_LOG = _hex(
    "0x1.147f7ep-4", "-0x1.de810ap-4", "0x1.e7046ap-4", "-0x1.fc18d4p-4", "0x1.23358ep-3",
    "-0x1.555c7ap-3", "0x1.99a4ccp-3", "-0x1.000006p-2", "0x1.555548p-2",
)  # fmt: skip
_TANH = _hex("-0x1.7363e6p-8", "0x1.519c84p-6", "-0x1.b827fcp-5", "0x1.110692p-3", "-0x1.555530p-2")
_TANH_SPLIT = np.float32(0.625)
_ERF = _hex(
    "0x1.496a24p-14", "-0x1.a3f6fap-11", "0x1.5405b2p-8", "-0x1.b7f90cp-6", "0x1.ce2cf8p-4", "-0x1.81273ep-2",
    "0x1.06eba8p-3",
)  # fmt: skip
_ERFC = _hex(
    "-0x1.852d76p-13", "0x1.814cf6p-9", "-0x1.654230p-6", "0x1.a60a8ap-4", "0x1.46c582p-1", "0x1.2085b2p+0",
    "0x1.72e58ap-12",
)  # fmt: skip
_ERF_MAX, _SQRT_HALF = _hex("0x1.0p+2", "0x1.6a09e6p-1")
_GELU_A, _GELU_B = _hex("0x1.988454p-1", "0x1.2444f2p-5")


def _horner(x: F32, coefficients: tuple[np.float32, ...]) -> F32:
    y: F32 = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y = fma32(y, x, c)
    return y


@_quiet
def exp(x: F32) -> F32:
    """e^x. Below EXP_MIN (results under 2^-126) +0, above EXP_MAX +inf, NaN stays NaN."""
    x = flush(x)
    t = fma32(x, _LOG2E, _MAGIC)  # the low bits of t hold n = round(x / ln 2)
    n = sub(t, _MAGIC)
    r = fma32(n, -_LN2_LO, fma32(n, -_LN2_HI, x))
    p = _horner(r, (*_EXP, np.float32(1), np.float32(1)))
    y = (p.view(np.uint32) + (t.view(np.uint32) << np.uint32(23))).view(np.float32)
    y = np.where(x < EXP_MIN, np.float32(0), y)
    y = np.where(x > EXP_MAX, INF, y)
    return np.where(x == x, y, x)


@_quiet
def log_reduce(x: F32) -> tuple[F32, F32]:
    """(k, f) with x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), of normal positive x; both float32 and exact."""
    bits = np.ascontiguousarray(x).view(np.int32)
    k = (bits - np.int32(0x3F3504F3)) >> 23
    return k.astype(np.float32), sub((bits - (k << 23)).view(np.float32), np.float32(1))


@_quiet
def log_parts(k: F32, f: F32) -> F32:
    """k log 2 + log(1 + f)."""
    z = mul(f, f)
    y = mul(mul(f, z), _horner(f, _LOG))
    y = fma32(z, np.float32(-0.5), fma32(k, _LN2_LO, y))
    return fma32(k, _LN2_HI, add(f, y))


@_quiet
def log(x: F32) -> F32:
    """Natural logarithm. Zeros and denormals give -inf, negative numbers NaN, +inf stays."""
    x = flush(x)
    y = log_parts(*log_reduce(x))
    y = np.where(x == 0, -INF, y)
    y = np.where(x < 0, np.float32(np.nan), y)
    return np.where(x < INF, y, x)


@_quiet
def tanh(x: F32) -> F32:
    """Below 5/8 an odd polynomial, above 1 - 2 / (exp(2|x|) + 1), which is 1 from 9.0109 on. -0 stays -0."""
    x = flush(x)
    a = np.abs(x)
    z = mul(x, x)
    small = fma32(mul(x, z), _horner(z, _TANH), x)
    large = sub(np.float32(1), div(np.float32(2), add(exp(add(a, a)), np.float32(1))))
    y = np.copysign(np.where(a < _TANH_SPLIT, small, large), x)
    return np.where(x == x, y, x)


def sigmoid(x: F32) -> F32:
    """1 / (1 + exp(-x))."""
    return div(np.float32(1), add(np.float32(1), exp(np.negative(x))))


@_quiet
def erf(x: F32) -> F32:
    """Below 1: x + x * P(x^2); above: 1 - exp(-Q(min(|x|, 4))) with the sign of x."""
    x = flush(x)
    a = np.abs(x)
    small = fma32(x, _horner(mul(x, x), _ERF), x)
    t = np.where(a < _ERF_MAX, a, _ERF_MAX)
    large = sub(np.float32(1), exp(np.negative(_horner(t, _ERFC))))
    y = np.copysign(np.where(a < np.float32(1), small, large), x)
    return np.where(x == x, y, x)


def gelu(x: F32) -> F32:
    """h = x / 2; fma(h, erf(x * sqrt(1/2)), h); both zeros give +0, -inf NaN. Hendrycks & Gimpel 2016."""
    h = mul(x := flush(x), np.float32(0.5))
    return fma32(h, erf(mul(x, _SQRT_HALF)), h)


def gelu_tanh(x: F32) -> F32:
    """h = x / 2; fma(h, tanh(x * fma(x * x, B, A)), h) with A = sqrt(2 / pi), B = 0.044715 A; specials as gelu."""
    h = mul(x := flush(x), np.float32(0.5))
    return fma32(h, tanh(mul(x, fma32(mul(x, x), _GELU_B, _GELU_A))), h)


def silu(x: F32) -> F32:
    """x * sigmoid(x); -inf gives NaN, large negative numbers give -0."""
    return mul(flush(x), sigmoid(x))
