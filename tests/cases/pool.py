"""Cases of `pool`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, batch_of, normal


@dataclass(frozen=True)
class Case:
    name: str
    mode: str
    width: int
    lengths: tuple[int, ...]
    is_normalized: bool = False
    scale: float = 1.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    *(
        Case(f"{mode}{'_normalized' if unit else ''}", mode, 100, (1, 7, 33, 16), is_normalized=unit)
        for mode in ("cls", "last", "mean")
        for unit in (False, True)
    ),
    Case("wide", "mean", 768, (3, 2), is_normalized=True),
    Case("zero", "mean", 17, (2, 5), is_normalized=True, scale=0.0),
)


def inputs(case: Case) -> F32:
    return normal(case.name, sum(case.lengths), case.width, scale=case.scale)


def run(cell: Any, case: Case) -> F32:
    ops = cell.ops()
    ops.begin(batch_of([(0, n) for n in case.lengths]))
    return ops.pool(inputs(case), case.mode, normalize=case.is_normalized)


def naive(case: Case) -> F64:
    x, ends = inputs(case).astype(float), np.cumsum(case.lengths)
    parts = np.split(x, ends[:-1])
    y = np.stack([{"cls": part[0], "last": part[-1], "mean": part.mean(axis=0)}[case.mode] for part in parts])
    return y / np.maximum(np.sqrt((y**2).sum(axis=-1, keepdims=True)), 1e-12) if case.is_normalized else y
