"""Cases of `linear` with weights of small floats (E4M3 in rows and groups, MXFP8, MXFP4), which GPUs run: sizes around the tiles
and groups, every epilogue, and the ends of E8M0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.cases import linear
from tests.cases.common import F32, F64, ROWS, values_of
from tests.cases.linear import ACTIVATIONS, EPILOGUES, Case

from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named
from octavo.quant.fp8 import E4M3FN

FORMS = ("f8row", "f8row+bf16", "f8g128", "mxfp8", "mxfp4")
SIZES = ((32, (1,)), (64, (16,)), (96, (17,)), (256, (33,)), (576, (40,)), (128, (24, 8, 8)))

CASES = (
    *(
        Case(f"{form}_{k}_{'_'.join(map(str, outs))}", form, ROWS[i % len(ROWS)], k, outs)
        for form in FORMS
        for i, (k, outs) in enumerate(SIZES)
    ),
    *(Case(f"{form}_200_33", form, 3, 200, (33,)) for form in ("f8row", "f8g128", "mxfp8")),
    *(Case(f"{form}_rows_{rows}", form, rows, 320, (66,)) for form in FORMS[1:] for rows in (0, 1, 17, 130)),
    *(
        Case(f"{form}_epilogue_{i}", form, 7, 64, (33,), **how)
        for form in ("f8g128", "mxfp4")
        for i, how in enumerate(EPILOGUES)
    ),
    *(Case(f"{form}_denormal", form, 7, 64, (9,), x_scale=3e-38, tolerance=1.0) for form in ("f8row", "mxfp8")),
    *(Case(f"{form}_zero_rows", form, 3, 64, (9,), x_scale=0.0) for form in ("f8g128", "mxfp4")),
    *(Case(f"{form}_codes", form, 5, 256, (34,)) for form in ("f8row", "mxfp8", "mxfp4")),
    *(Case(f"{form}_low_ends", form, 5, 64, (34,), x_scale=1e4) for form in ("mxfp8", "mxfp4")),
    *(Case(f"{form}_high_ends", form, 5, 64, (34,), x_scale=1e-4) for form in ("mxfp8", "mxfp4")),
)


def inputs(case: Case) -> dict[str, Any]:
    """As `linear.inputs`; `_codes` has every code, `_low_ends` the scales 2^-127 and 2^-126, `_high_ends` 2^126 and 2^127."""
    given = linear.inputs(case)
    if case.name.endswith("_codes"):
        given["tensors"] = [_all_codes(given["tensors"][0])]
    if case.name.endswith("_ends"):
        ends = (0, 1) if case.name.endswith("_low_ends") else (253, 254)
        given["tensors"] = [_end_scales(given["tensors"][0], ends)]
    return given


def _all_codes(tensor: RawTensor) -> RawTensor:
    data = tensor.data.copy()
    count = np.arange(data.size)
    if tensor.format == "mxfp4":
        blocks = data.reshape(-1, 17)
        blocks[:, 1:] = (np.arange(blocks.shape[0] * 16) * 7).reshape(-1, 16).astype(np.uint8)
        return replace(tensor, data=data)
    data[:] = (count + count // 256).astype(np.uint8)
    data[(data & 0x7F) > E4M3FN.top] = 0x80
    return replace(tensor, data=data)


def _end_scales(tensor: RawTensor, ends: tuple[int, int]) -> RawTensor:
    """One of two scales per output, so that no sum mixes them. At the high end numbers are at most one: all stay finite."""
    scales = np.repeat(np.array(ends, np.uint8)[np.arange(tensor.shape[0]) % 2], tensor.shape[1] // 32)
    data = tensor.data.copy()
    if tensor.format == "mxfp4":
        blocks = data.reshape(-1, 17)
        blocks[:, 0] = scales
        if ends[0]:
            blocks[:, 1:] &= 0xAA
        return replace(tensor, data=data)
    assert tensor.scales is not None
    if ends[0]:
        data &= 0xB7
    return replace(tensor, data=data, scales=replace(tensor.scales, data=scales))


def run(cell: Any, case: Case) -> F32:
    given = inputs(case)
    weight = cell.weights().linear(given["tensors"], given["bias"])
    how = {name: given.get(name) for name in ("gate", "residual")}
    result: F32 = cell.ops().linear(given["x"], weight, activation=case.activation, scale=case.scale, **how)
    return result


def f8_rows(x: F32, form: str) -> F64:
    """Rows as the format's product sees them: E4M3 by a scale per group."""
    base = format_named(form.split("+")[0])
    group = base.group or x.shape[1]
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % group))).astype(np.float64)
    wide = padded.reshape(len(x), padded.shape[1] // group, group)
    peak = np.abs(wide).max(axis=2, keepdims=True, initial=0)
    if base.name.startswith("mx"):
        scale = np.exp2(np.ceil(np.log2(np.where(peak > 0, peak, 1) / 448)).clip(-126))
    else:
        scale = (peak.astype(np.float32) / np.float32(448)).astype(np.float64)
    safe = np.where(scale > 0, scale, 1)
    codes = E4M3FN.encode((wide.astype(np.float32) / safe.astype(np.float32)).astype(np.float32))
    return (E4M3FN.decode(codes).astype(np.float64) * scale).reshape(padded.shape)[:, : x.shape[1]]


def naive(case: Case) -> F64:
    given = inputs(case)
    w = np.concatenate([values_of(t) for t in given["tensors"]])
    y = f8_rows(given["x"], case.form) @ w.T * case.scale
    if given["bias"] is not None:
        y = y + values_of(given["bias"])
    return ACTIVATIONS[case.activation](y) * given.get("gate", 1) + given.get("residual", 0)
