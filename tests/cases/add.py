"""Cases of `add`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, normal


@dataclass(frozen=True)
class Case:
    name: str
    rows: int
    width: int
    scale_a: float = 1.0
    scale_b: float = 1.0
    magnitude: float = 1.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    Case("one", 1, 1),
    Case("odd", 7, 33),
    Case("scaled_a", 2, 576, scale_a=0.22),
    Case("scaled_b", 16, 17, scale_b=-3.3),
    Case("both", 33, 64, 0.1, 1.7),
    Case("denormal", 5, 64, magnitude=1e-38, tolerance=0.5),
)


def inputs(case: Case) -> tuple[F32, F32]:
    a, b = (normal(case.name + part, case.rows, case.width, scale=case.magnitude) for part in "ab")
    return a, b


def run(cell: Any, case: Case) -> F32:
    a, b = inputs(case)
    return cell.ops().add(a, b, scale_a=case.scale_a, scale_b=case.scale_b)


def naive(case: Case) -> F64:
    a, b = inputs(case)
    return a.astype(float) * case.scale_a + b.astype(float) * case.scale_b
