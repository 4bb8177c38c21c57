"""Cases of `rms_norm`: widths around the sixteen lanes, per row and per head, tiny and large rows."""

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
    heads: int = 1
    is_weighted: bool = True
    eps: float = 1e-5
    scale: float = 1.0
    add: float = 0.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    *(Case(f"width_{n}", 3, n) for n in (1, 15, 16, 17, 64, 100, 576)),
    *(Case(f"rows_{n}", n, 32) for n in (2, 7, 33)),
    Case("rows_33_wide", 33, 100),
    Case("heads", 5, 4 * 24, heads=4),
    Case("heads_odd", 2, 3 * 20, heads=3, eps=1e-6),
    Case("plain", 4, 40, is_weighted=False),
    Case("tiny", 2, 64, scale=1e-4),
    Case("large", 2, 64, scale=1e6),
    Case("shifted", 2, 64, add=1.0),
)


def inputs(case: Case) -> tuple[F32, F32]:
    x = normal(case.name, case.rows, case.width, scale=case.scale)
    return x, normal(case.name + "w", case.width // case.heads)


def run(cell: Any, case: Case) -> F32:
    x, w = inputs(case)
    weight = cell.weights().vector(stored("w", w), add=case.add) if case.is_weighted else None
    return cell.ops().rms_norm(x, weight, case.eps, heads=case.heads)


def naive(case: Case) -> F64:
    x, w = inputs(case)
    parts = x.astype(float).reshape(case.rows, case.heads, -1)
    y = parts / np.sqrt((parts**2).mean(axis=-1, keepdims=True) + case.eps)
    return (y * (w.astype(float) + case.add) if case.is_weighted else y).reshape(x.shape)
