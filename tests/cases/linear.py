"""Cases of `linear`: every weight format, sizes around the tiles, every epilogue; the shapes of `gated_mlp` and `lm_head`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import (
    APART_FORMATS,
    F32,
    F64,
    FLOAT32_TOLERANCE,
    FLOAT_FORMATS,
    GROUP_FORMATS,
    K_FORMATS,
    ROWS,
    bf16,
    f16_rows,
    int8_rows,
    normal,
    stored,
    values_of,
)

from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    rows: int
    num_in: int
    outs: tuple[int, ...]  # of the stacked tensors
    has_bias: bool = False
    activation: str = "none"
    has_gate: bool = False
    has_residual: bool = False
    scale: float = 1.0
    is_transposed: bool = False
    x_scale: float = 1.0
    tolerance: float = FLOAT32_TOLERANCE


def _sizes(form: str) -> list[tuple[int, tuple[int, ...]]]:
    """(num_in, outs) below, at and above tiles of 16 and 32 outputs, and of the format's block."""
    if form in FLOAT_FORMATS:
        return [
            (1, (1,)),
            (31, (15,)),
            (32, (16,)),
            (33, (17,)),
            (64, (32,)),
            (100, (33,)),
            (576, (48,)),
            (64, (7, 9, 40)),
        ]
    if form in GROUP_FORMATS:
        return [(32, (1,)), (64, (16,)), (96, (17,)), (256, (33,)), (576, (40,)), (64, (24, 8, 8))]
    if form in APART_FORMATS:
        return [(8, (1,)), (64, (16,)), (96, (17,)), (200, (33,)), (576, (40,)), (128, (24, 8, 8))]
    return [(256, (1,)), (256, (16,)), (512, (17,)), (768, (40,)), (256, (24, 8, 8))]


EPILOGUES: tuple[dict[str, Any], ...] = (
    {"has_bias": True},
    {"activation": "silu", "has_bias": True},
    {"activation": "gelu"},
    {"activation": "gelu_tanh", "has_gate": True},
    {"activation": "relu"},
    {"activation": "relu2", "has_residual": True},
    {"activation": "tanh"},
    {"activation": "sigmoid", "scale": 0.3},
    {"scale": 0.22, "has_bias": True, "has_gate": True, "has_residual": True},
)

CASES = (
    *(
        Case(f"{form}_{k}_{'_'.join(map(str, outs))}", form, ROWS[i % len(ROWS)], k, outs)
        for form in (*FLOAT_FORMATS, *GROUP_FORMATS, *K_FORMATS, *APART_FORMATS)
        for i, (k, outs) in enumerate(_sizes(form))
    ),
    *(
        Case(f"{form}_rows_{rows}", form, rows, 256, (34,))
        for form in ("bf16", "f32", "q4_0", "q4_k", "q6_k")
        for rows in ROWS
    ),
    *(
        Case(f"{form}_rows_{rows}", form, rows, 256, (34,))
        for form in ("q5_0", "q5_1", "q2_k", "q3_k", "q5_k")
        for rows in (1, 9, 130)
    ),
    *(
        Case(f"{form}_rows_{rows}", form, rows, 328, (66,))
        for form in ("w8a8", "i4g32", "i4g64+z+f16", "i4g128")
        for rows in (0, 1, 17, 130)
    ),
    *(
        Case(f"{form}_epilogue_{i}", form, 7, 64, (33,), **options)
        for form in ("bf16", "q4_1", "w8a8", "i4g64")
        for i, options in enumerate(EPILOGUES)
    ),
    Case("bf16_chunks", "bf16", 83, 800, (50,)),
    Case("bf16_row_blocks", "bf16", 530, 40, (33,)),
    Case("bf16_tiles", "bf16", 150, 168, (300,), True, "silu", has_gate=True, has_residual=True),
    Case("f32_transposed", "f32", 3, 40, (24,), is_transposed=True, has_bias=True),
    Case("bf16_transposed", "bf16", 3, 40, (24,), is_transposed=True),
    Case("f32_denormal", "f32", 7, 64, (9,), x_scale=3e-39, tolerance=1.0),
    Case("bf16_denormal", "bf16", 7, 64, (9,), x_scale=3e-39, tolerance=1.0),
    Case("q8_0_denormal", "q8_0", 7, 64, (9,), x_scale=3e-38, tolerance=1.0),
    Case("q8_0_zero_rows", "q8_0", 3, 64, (9,), x_scale=0.0),
    Case("bf16_zero_rows", "bf16", 3, 64, (9,), x_scale=0.0),
    Case("w8a8_denormal", "w8a8", 7, 64, (9,), x_scale=3e-38, tolerance=1.0),
    Case("i4g32_denormal", "i4g32", 7, 64, (9,), x_scale=3e-38, tolerance=1.0),
    Case("w8a8_zero_rows", "w8a8", 3, 64, (9,), x_scale=0.0),
    Case("i4g128_zero_rows", "i4g128", 3, 64, (9,), x_scale=0.0),
    Case("w8a8_long", "w8a8", 2, 9000, (5,)),
    Case("q8_0_long", "q8_0", 2, 419_456, (1,), tolerance=2e-5),  # rows that no thread's scratch holds in pairs
    Case("q5_1_tiny", "q5_1", 3, 64, (9,), x_scale=1e-20),
    Case("q4_k_large", "q4_k", 3, 256, (9,), x_scale=1e15),
)


def inputs(case: Case) -> dict[str, Any]:
    """x, the stored tensors, bias, gate and residual."""
    num_out = sum(case.outs)
    x = normal(case.name, case.rows, case.num_in, scale=case.x_scale)
    tensors: list[RawTensor] = []
    for i, n in enumerate(case.outs):
        values = normal(f"{case.name}{i}", n, case.num_in, scale=0.3)
        tensors.append(stored(f"w{i}", np.ascontiguousarray(values.T) if case.is_transposed else values, case.form))
    side = {
        name: normal(case.name + name, case.rows, num_out)
        for name in ("gate", "residual")
        if getattr(case, f"has_{name}")
    }
    bias = stored("bias", normal(case.name + "bias", num_out)) if case.has_bias else None
    return {"x": x, "tensors": tensors, "bias": bias, **side}


def run(cell: Any, case: Case) -> F32:
    given = inputs(case)
    weight = cell.weights().linear(given["tensors"], given["bias"], transpose=case.is_transposed)
    return cell.ops().linear(
        given["x"],
        weight,
        activation=case.activation,
        gate=given.get("gate"),
        residual=given.get("residual"),
        scale=case.scale,
    )


def product(x: F32, w: F64, form: str, prepare: str = "") -> F64:
    """x w^T as the format's product sees its inputs: bfloat16, or int8 per block; or as the op `prepare` leaves them."""
    if prepare == "prepare_f16row":
        return f16_rows(x) @ w.T
    if form == "bf16":
        return bf16(x) @ w.T
    if form in FLOAT_FORMATS:
        return x.astype(float) @ w.T
    num_in = x.shape[1]
    if form in APART_FORMATS:
        block = format_named(form.split("+")[0]).group or num_in
    else:
        block = 32 if form in GROUP_FORMATS else 256
    blocks = -(-num_in // block)
    padded = np.pad(x, ((0, 0), (0, blocks * block - num_in)))
    codes, scale = int8_rows(padded.reshape(len(x), blocks, block))
    return (codes * scale).reshape(padded.shape)[:, :num_in] @ w.T


_ERF = np.vectorize(math.erf)
ACTIVATIONS: dict[str, Any] = {
    "none": lambda y: y,
    "silu": lambda y: y / (1 + np.exp(-y)),
    "gelu": lambda y: 0.5 * y * (1 + _ERF(y / np.sqrt(2))),
    "gelu_tanh": lambda y: 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))),
    "relu": lambda y: np.maximum(y, 0),
    "relu2": lambda y: np.maximum(y, 0) ** 2,
    "tanh": np.tanh,
    "sigmoid": lambda y: 1 / (1 + np.exp(-y)),
}


def naive(case: Case, prepare: str = "") -> F64:
    given = inputs(case)
    w = np.concatenate([values_of(t).T if case.is_transposed else values_of(t) for t in given["tensors"]])
    y = product(given["x"], w, case.form, prepare) * case.scale
    if given["bias"] is not None:
        y = y + values_of(given["bias"])
    y = ACTIVATIONS[case.activation](y)
    return y * given.get("gate", 1) + given.get("residual", 0)
