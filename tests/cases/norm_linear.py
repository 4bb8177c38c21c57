"""Cases of a product of normed rows: two ops, which a program may run as one launch and a product (platforms/gpu/fusion.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, normal, stored, values_of
from tests.cases.linear import product

from octavo.platforms.selftest.joined import joined


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    rows: int
    width: int
    is_weighted: bool = True
    is_layer: bool = False
    scale: float = 1.0
    tolerance: float = 2e-3  # values that another order of sums has rounded to the other neighbour


CASES = (
    *(Case(f"{form}_200", form, 3, 200) for form in ("f32", "f16", "bf16", "w8a8", "i4g32", "i4g64", "i4g128")),
    *(Case(f"{form}_768", form, 2, 768) for form in ("q4_0", "q8_0", "q4_k", "q6_k", "bf16")),
    *(Case(f"bf16_rows_{rows}", "bf16", rows, 96) for rows in (1, 19)),
    Case("bf16_plain", "bf16", 2, 96, is_weighted=False),
    Case("bf16_tiny", "bf16", 2, 96, scale=1e-4),
    Case("bf16_long", "bf16", 2, 8232),
    Case("w8a8_long", "w8a8", 1, 8232),
)
EPS = 1e-5


def inputs(case: Case) -> tuple[F32, F32, Any]:
    x = normal(case.name, case.rows, case.width, scale=case.scale)
    weight = stored("w", normal(case.name + "w", 9, case.width, scale=0.3), case.form)
    return x, normal(case.name + "n", case.width), weight


def run(cell: Any, case: Case) -> F32:
    x, scales, tensor = inputs(case)
    weight = cell.weights().linear([tensor])
    factors = cell.weights().vector(stored("n", scales)) if case.is_weighted else None

    def calls(ops: Any, x: Any) -> Any:
        normed = ops.layer_norm(x, factors, factors, EPS) if case.is_layer else ops.rms_norm(x, factors, EPS)
        return ops.linear(normed, weight)

    y: F32 = joined(cell.ops(), calls, x)
    return y


def naive(case: Case, prepare: str = "") -> F64:
    x, scales, tensor = inputs(case)
    wide = x.astype(float)
    if case.is_layer:
        wide = wide - wide.mean(axis=-1, keepdims=True)
    y = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + EPS)
    if case.is_weighted:
        y = y * scales + (scales if case.is_layer else 0)
    return product(y.astype("f4"), values_of(tensor), case.form, prepare)
