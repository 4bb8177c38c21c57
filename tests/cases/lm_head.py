"""Cases of `lm_head` behind `gather_rows`: the rows that are wanted, in every weight format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT32_TOLERANCE, batch_of, normal, stored, values_of
from tests.cases.linear import product

from octavo.platforms.types import RawTensor


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    width: int
    vocab: int
    tokens: int
    rows: tuple[int, ...]
    scale: float = 1.0
    softcap: float = 0.0
    tolerance: float = FLOAT32_TOLERANCE


CASES = (
    Case("bf16_last", "bf16", 64, 257, 9, (8,)),
    Case("f32_some", "f32", 40, 100, 9, (0, 3, 8)),
    Case("q6_k_all", "q6_k", 256, 130, 3, (0, 1, 2)),
    Case("q8_0_capped", "q8_0", 64, 65, 33, (32,), softcap=30.0),
    Case("f16_scaled", "f16", 32, 48, 5, (1, 4), scale=0.25),
)


def inputs(case: Case) -> tuple[F32, RawTensor]:
    weight = stored("head", normal(case.name + "w", case.vocab, case.width), case.form)
    return normal(case.name, case.tokens, case.width), weight


def run(cell: Any, case: Case) -> F32:
    x, weight = inputs(case)
    ops = cell.ops()
    ops.begin(batch_of([(0, case.tokens)], logits_rows=case.rows))
    return ops.lm_head(ops.gather_rows(x), cell.weights().linear([weight]), scale=case.scale, softcap=case.softcap)


def naive(case: Case) -> F64:
    x, weight = inputs(case)
    y = product(x[list(case.rows)], values_of(weight), case.form) * case.scale
    return case.softcap * np.tanh(y / case.softcap) if case.softcap else y
