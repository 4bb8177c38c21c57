"""Cases of `rope`: whole and partial heads, both pairings, far positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, batch_of, normal

from octavo.platforms.rope import frequencies
from octavo.platforms.types import Rope


@dataclass(frozen=True)
class Case:
    name: str
    rows: int
    heads: int
    head_dim: int
    rotary_dim: int
    is_interleaved: bool = False
    past: int = 0
    factor: float = 1.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    *(Case(f"dim_{n}", 3, 2, n, n) for n in (2, 32, 64, 80, 96, 128, 256)),
    *(Case(f"rows_{n}", n, 3, 64, 64) for n in (1, 7, 16, 33)),
    Case("partial", 5, 2, 80, 32),
    Case("interleaved", 5, 3, 64, 64, is_interleaved=True),
    Case("interleaved_partial", 5, 2, 40, 20, is_interleaved=True),
    Case("far", 4, 1, 64, 64, past=3900),
    Case("factor", 4, 1, 32, 32, factor=1.19),
)


def inputs(case: Case) -> tuple[F32, Rope]:
    inv_freq, _ = frequencies("default", {"rope_theta": 10000.0}, case.rotary_dim, max_len=1, max_positions=1)
    rope = Rope(inv_freq, case.rotary_dim, case.factor, case.is_interleaved, 4096)
    return normal(case.name, case.rows, case.heads * case.head_dim), rope


def run(cell: Any, case: Case) -> F32:
    x, rope = inputs(case)
    ops = cell.ops()
    ops.begin(batch_of([(case.past, case.rows)]))
    return ops.rope(x, rope, heads=case.heads)


def naive(case: Case) -> F64:
    x, rope = inputs(case)
    y = x.astype(float).reshape(case.rows, case.heads, case.head_dim).copy()
    half = case.rotary_dim // 2
    angle = np.multiply.outer(np.arange(case.past, case.past + case.rows), np.array(rope.inv_freq))[:, None]
    pair = (
        (2 * np.arange(half), 2 * np.arange(half) + 1)
        if case.is_interleaved
        else (np.arange(half), half + np.arange(half))
    )
    turned = (y[..., pair[0]] + 1j * y[..., pair[1]]) * np.exp(1j * angle) * case.factor
    y[..., pair[0]], y[..., pair[1]] = turned.real, turned.imag
    return y.reshape(x.shape)
