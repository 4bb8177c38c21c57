"""Cases of `layer_norm`: with and without weight and bias, rows far from zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, normal, stored


@dataclass(frozen=True)
class Case:
    name: str
    rows: int
    width: int
    has_weight: bool = True
    has_bias: bool = True
    offset: float = 0.0
    tolerance: float = FLOAT32_TOLERANCE
    eps: float = 1e-5


CASES = (
    *(Case(f"width_{n}", 3, n) for n in (2, 15, 16, 17, 64, 100, 768)),
    Case("rows", 33, 48),
    Case("no_bias", 7, 40, has_bias=False),
    Case("plain", 2, 64, has_weight=False, has_bias=False),
    Case("bias_only", 2, 33, has_weight=False),
    Case("far", 2, 64, offset=100.0, tolerance=4e-5),
)


def inputs(case: Case) -> tuple[F32, F32, F32]:
    x = normal(case.name, case.rows, case.width) + np.float32(case.offset)
    return x, normal(case.name + "w", case.width), normal(case.name + "b", case.width)


def run(cell: Any, case: Case) -> F32:
    x, w, b = inputs(case)
    weight = cell.weights().vector(stored("w", w)) if case.has_weight else None
    bias = cell.weights().vector(stored("b", b)) if case.has_bias else None
    return cell.ops().layer_norm(x, weight, bias, case.eps)


def naive(case: Case) -> F64:
    x, w, b = (array.astype(float) for array in inputs(case))
    d = x - x.mean(axis=-1, keepdims=True)
    y = d / np.sqrt((d**2).mean(axis=-1, keepdims=True) + case.eps)
    return y * (w if case.has_weight else 1) + (b if case.has_bias else 0)
