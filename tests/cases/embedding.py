"""Cases of `embedding`: every stored format, every source of ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, FLOAT_FORMATS, GROUP_FORMATS, K_FORMATS, batch_of, normal, stored, values_of

from octavo.platforms.types import RawTensor


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    rows: int
    width: int
    ids: str = "token_ids"
    scale: float = 1.0
    tolerance: float = 1e-7


CASES = (
    *(Case(form, form, 7, 48) for form in FLOAT_FORMATS),
    *(Case(form, form, 7, 96) for form in GROUP_FORMATS),
    *(Case(form, form, 3, 512) for form in K_FORMATS),
    Case("scaled", "bf16", 16, 33, scale=8.0),
    Case("scaled_inexactly", "q8_0", 2, 64, scale=50.596443),
    Case("positions", "f32", 9, 20, ids="positions"),
    Case("types", "f16", 9, 20, ids="token_types"),
)
NUM_ROWS = 40


def inputs(case: Case) -> tuple[RawTensor, np.ndarray]:
    table = stored(case.name, normal(case.name, NUM_ROWS, case.width), case.form)
    ids = (np.arange(case.rows) * 17 % NUM_ROWS).astype(np.int32)
    return table, ids


def _batch(case: Case) -> Any:
    return batch_of([(11, case.rows)], token_ids=inputs(case)[1])


def run(cell: Any, case: Case) -> F32:
    ops = cell.ops()
    ops.begin(_batch(case))
    return ops.embedding(cell.weights().embedding(inputs(case)[0]), ids=case.ids, scale=case.scale)


def naive(case: Case) -> F64:
    ids = getattr(_batch(case), case.ids)
    return values_of(inputs(case)[0])[ids[0] if case.ids == "positions" else ids] * np.float32(case.scale)
