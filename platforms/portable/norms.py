"""rms_norm and layer_norm of rows [rows, width]: sums in sixteen lanes folded 8, 4, 2, 1 apart (platforms/ops.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.platforms.portable.jit import ONE, ZERO, flush, fma, inline, kernel


@inline
def fold(lanes: Any) -> Any:
    half = 8
    while half:
        for i in range(half):
            lanes[i] = flush(lanes[i] + lanes[i + half])
        half //= 2
    return lanes[0]


@inline
def sum16(x: Any, lanes: Any) -> Any:
    lanes[:] = ZERO
    for start in range(0, len(x), 16):
        for j in range(min(16, len(x) - start)):
            lanes[j] = flush(lanes[j] + x[start + j])
    return fold(lanes)


@inline
def sum16_squares(x: Any, lanes: Any) -> Any:
    lanes[:] = ZERO
    for start in range(0, len(x), 16):
        for j in range(min(16, len(x) - start)):
            lanes[j] = flush(fma(x[start + j], x[start + j], lanes[j]))
    return fold(lanes)


@kernel
def rms_norm(x: Any, weight: Any, has_weight: Any, eps: Any, y: Any) -> None:
    lanes, row = np.empty(16, np.float32), np.empty(x.shape[1], np.float32)
    count = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        for i in range(len(row)):
            row[i] = flush(x[r, i])
        mean = flush(sum16_squares(row, lanes) / count)
        inverse = flush(ONE / np.float32(math.sqrt(flush(mean + eps))))
        for i in range(len(row)):
            v = flush(row[i] * inverse)
            y[r, i] = flush(v * flush(weight[i])) if has_weight else v


@kernel
def layer_norm(x: Any, weight: Any, bias: Any, has_weight: Any, has_bias: Any, eps: Any, y: Any) -> None:
    lanes, row = np.empty(16, np.float32), np.empty(x.shape[1], np.float32)
    count = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        for i in range(len(row)):
            row[i] = flush(x[r, i])
        mean = flush(sum16(row, lanes) / count)
        for i in range(len(row)):
            row[i] = flush(row[i] - mean)
        variance = flush(sum16_squares(row, lanes) / count)
        inverse = flush(ONE / np.float32(math.sqrt(flush(variance + eps))))
        for i in range(len(row)):
            v = flush(row[i] * inverse)
            if has_weight and has_bias:
                v = flush(fma(v, flush(weight[i]), flush(bias[i])))
            elif has_weight:
                v = flush(v * flush(weight[i]))
            elif has_bias:
                v = flush(v + flush(bias[i]))
            y[r, i] = v
