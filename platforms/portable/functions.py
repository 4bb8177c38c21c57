"""exp, tanh, erf and the activations of one float32: the compiled twins of platforms/reference/f32.py, operation by operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.platforms.portable.jit import ONE, ZERO, bits_of, flush, fma, from_bits, inline, kernel
from octavo.platforms.reference import f32 as ref

_MAGIC, _LOG2E, _LN2_HI, _LN2_LO = ref._MAGIC, ref._LOG2E, -ref._LN2_HI, -ref._LN2_LO
_EXP_MIN, _EXP_MAX, _INF = ref.EXP_MIN, ref.EXP_MAX, ref.INF
_EXP = (*ref._EXP, ONE, ONE)
_TANH, _SPLIT = ref._TANH, ref._TANH_SPLIT
_ERF, _ERFC, _ERF_MAX = ref._ERF, ref._ERFC, ref._ERF_MAX
_SQRT_HALF, _GELU_A, _GELU_B = ref._SQRT_HALF, ref._GELU_A, ref._GELU_B
_HALF, _TWO = np.float32(0.5), np.float32(2)
#: codes of `activate`, in the order of platforms.types.Activation
ACTIVATIONS = ("none", "silu", "gelu", "gelu_tanh", "relu", "relu2", "tanh", "sigmoid")


@inline
def horner(x: Any, coefficients: Any) -> Any:
    y = coefficients[0]
    for i in range(1, len(coefficients)):
        y = flush(fma(y, x, coefficients[i]))
    return y


@inline
def exp(x: Any) -> Any:
    x = flush(x)
    t = flush(fma(x, _LOG2E, _MAGIC))
    n = flush(t - _MAGIC)
    r = flush(fma(n, _LN2_LO, flush(fma(n, _LN2_HI, x))))
    p = horner(r, _EXP)
    y = from_bits(np.int32(bits_of(p) + np.int32(bits_of(t) << np.int32(23))))
    y = ZERO if x < _EXP_MIN else y
    y = _INF if x > _EXP_MAX else y
    return y if x == x else x


@inline
def copysign(x: Any, sign: Any) -> Any:
    return from_bits(np.int32((bits_of(x) & np.int32(0x7FFFFFFF)) | (bits_of(sign) & np.int32(-2147483648))))


@inline
def tanh(x: Any) -> Any:
    x = flush(x)
    a = abs(x)
    z = flush(x * x)
    small = flush(fma(flush(x * z), horner(z, _TANH), x))
    large = flush(ONE - flush(_TWO / flush(exp(flush(a + a)) + ONE)))
    y = copysign(small if a < _SPLIT else large, x)
    return y if x == x else x


@inline
def sigmoid(x: Any) -> Any:
    return flush(ONE / flush(ONE + exp(-x)))


@inline
def erf(x: Any) -> Any:
    x = flush(x)
    a = abs(x)
    small = flush(fma(x, horner(flush(x * x), _ERF), x))
    t = a if a < _ERF_MAX else _ERF_MAX
    large = flush(ONE - exp(-horner(t, _ERFC)))
    y = copysign(small if a < ONE else large, x)
    return y if x == x else x


@inline
def gelu(x: Any) -> Any:
    h = flush(x * _HALF)
    return flush(fma(h, erf(flush(x * _SQRT_HALF)), h))


@inline
def gelu_tanh(x: Any) -> Any:
    h = flush(x * _HALF)
    inner = flush(fma(flush(x * x), _GELU_B, _GELU_A))
    return flush(fma(h, tanh(flush(x * inner)), h))


@kernel
def activate(y: Any, kind: Any) -> None:
    """`ACTIVATIONS[kind]` of every value of y [rows, width], in place."""
    for row in range(y.shape[0]):
        for i in range(y.shape[1]):
            x = flush(y[row, i])
            if kind == 1:
                x = flush(x * sigmoid(x))
            elif kind == 2:
                x = gelu(x)
            elif kind == 3:
                x = gelu_tanh(x)
            elif kind == 4:
                x = x if x > ZERO else ZERO
            elif kind == 5:
                x = flush(x * x) if x > ZERO else ZERO
            elif kind == 6:
                x = tanh(x)
            elif kind == 7:
                x = sigmoid(x)
            y[row, i] = x


@kernel
def softcap(y: Any, cap: Any) -> None:
    """cap * tanh(y / cap) in place."""
    for row in range(y.shape[0]):
        for i in range(y.shape[1]):
            y[row, i] = flush(cap * tanh(flush(flush(y[row, i]) / cap)))
