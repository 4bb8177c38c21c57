"""Cases of `greedy_head`: ids of the greatest logits, as float32 (exact), of heads of every size around the panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, batch_of, normal, stored, values_of
from tests.cases.linear import product

from octavo.platforms.types import RawTensor


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    width: int
    vocab: int
    rows: tuple[int, ...]
    scale: float = 1.0
    softcap: float = 0.0
    tolerance: float = 0.0  # an id is right or wrong


CASES = (
    Case("one_token", "f32", 32, 1, (0, 1)),
    Case("less_than_a_panel", "bf16", 64, 15, (0, 2)),
    Case("one_panel", "f16", 40, 16, (1,)),
    Case("one_more", "q8_0", 64, 17, (0, 1, 2)),
    Case("many_panels", "q4_0", 96, 4001, (0, 1, 2, 3, 4)),
    Case("k_quant", "q6_k", 256, 1000, tuple(range(9))),
    Case("apart", "w8a8", 96, 333, (0, 5)),
    Case("grouped", "i4g64+z+f16", 128, 200, (3,)),
    Case("many_rows", "bf16", 64, 600, tuple(range(40))),
    Case("capped", "q8_0", 64, 1025, (0, 1, 2), softcap=30.0),
    Case("scaled", "f32", 33, 100, (4,), scale=0.25),
)


def inputs(case: Case) -> tuple[F32, RawTensor]:
    weight = stored("head", normal(case.name + "w", case.vocab, case.width), case.form)
    return normal(case.name, max(case.rows) + 2, case.width), weight


def run(cell: Any, case: Case) -> F32:
    x, weight = inputs(case)
    ops = cell.ops()
    ops.begin(batch_of([(0, len(x))], logits_rows=case.rows))
    head = cell.weights().linear([weight])
    ids = ops.greedy_head(ops.gather_rows(x), head, scale=case.scale, softcap=case.softcap)
    assert ids.dtype == np.int32
    return np.asarray(ids, np.float32)


def naive(case: Case, prepare: str = "") -> F64:
    x, weight = inputs(case)
    y = product(x[list(case.rows)], values_of(weight), case.form, prepare) * case.scale
    return y.argmax(axis=1).astype(np.float64).reshape(-1, 1)
