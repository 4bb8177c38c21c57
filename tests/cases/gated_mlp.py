"""Cases of `gated_mlp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cases.common import F32, F64, normal, stored, values_of
from tests.cases.linear import ACTIVATIONS, product

from octavo.platforms.types import RawTensor


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    rows: int
    width: int
    hidden: int
    activation: str = "silu"
    scale: float = 1.0
    has_residual: bool = True
    tolerance: float = 1e-6


CASES = (
    Case("f32", "f32", 7, 40, 96),
    Case("bf16", "bf16", 2, 64, 160),
    Case("f16", "f16", 1, 64, 33, activation="gelu_tanh"),
    Case("q4_1", "q4_1", 16, 64, 96),
    Case("q8_0_scaled", "q8_0", 3, 32, 64, scale=0.22, has_residual=False),
    Case("q4_k", "q4_k", 1, 256, 256, activation="gelu"),
    Case("rows_33", "f32", 33, 32, 32),
)


def inputs(case: Case) -> tuple[F32, list[RawTensor], F32]:
    shapes = {"gate": (case.hidden, case.width), "up": (case.hidden, case.width), "down": (case.width, case.hidden)}
    tensors = [stored(name, normal(case.name + name, *shape, scale=0.2), case.form) for name, shape in shapes.items()]
    return normal(case.name, case.rows, case.width), tensors, normal(case.name + "r", case.rows, case.width)


def run(cell: Any, case: Case) -> F32:
    x, tensors, residual = inputs(case)
    weights = cell.weights()
    gate, up, down = (weights.linear([tensor]) for tensor in tensors)
    if weights.stacks_gated:
        gate, up = None, weights.linear(tensors[:2])
    return cell.ops().gated_mlp(
        x, gate, up, down, case.activation, residual=residual if case.has_residual else None, scale=case.scale
    )


def naive(case: Case) -> F64:
    x, tensors, residual = inputs(case)
    gate, up, down = (values_of(tensor) for tensor in tensors)
    hidden = ACTIVATIONS[case.activation](product(x, gate, case.form)) * product(x, up, case.form)
    y = product(hidden.astype("f4"), down, case.form) * case.scale
    return y + residual if case.has_residual else y
