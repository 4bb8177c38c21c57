"""Cases of `softcap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, normal


@dataclass(frozen=True)
class Case:
    name: str
    rows: int
    width: int
    cap: float
    spread: float = 10.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    Case("one", 1, 1, 30.0),
    Case("odd", 7, 100, 50.0),
    Case("saturated", 2, 257, 5.0, 40.0),
    Case("rows", 33, 16, 1.0),
)


def inputs(case: Case) -> F32:
    return normal(case.name, case.rows, case.width, scale=case.spread)


def run(cell: Any, case: Case) -> F32:
    return cell.ops().softcap(inputs(case), case.cap)


def naive(case: Case) -> F64:
    return case.cap * np.tanh(inputs(case).astype(float) / case.cap)
