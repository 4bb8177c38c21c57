"""f8row, f8g128 and mxfp8: codes E4M3 of OCP, scales kept apart.

    codes   [rows, K] uint8, numbers as `fp8.E4M3FN` reads them; 7f and ff are refused
    f8row   one scale per row, f32, f16 or bf16, widened exactly (`scales_by_row` repeats the one of a tensor)
    f8g128  one per row and 128 inputs, likewise (`scales_by_row` repeats those of blocks of 128 x 128)
    mxfp8   one per row and 32 inputs, f8_e8m0: powers of two (`mx.E8M0`)

Packing: s = amax / 448 in float32 (zero where that is under 2^-126), or for mxfp8 the least power of two with
amax <= 448 s, numbers under 2^-126 counting as zero; codes to nearest. Inputs of products are rounded to the same codes in
the same groups, so that both sides of a product are E4M3.
Source: the float-quantized layout of compressed-tensors (github.com/vllm-project/compressed-tensors); blocks of 128 x 128 are
those of DeepSeek-V3 (arXiv:2412.19437); OCP Microscaling Formats (MX) Specification 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import ModelError
from octavo.quant.blocks import as_blocks, as_values, scales_of
from octavo.quant.formats import Format
from octavo.quant.fp8 import E4M3FN, E8M0
from octavo.quant.mx import e8m0_above
from octavo.quant.parts import Bytes, Floats, QuantizedParts, Stored

ERROR_BOUND = (2.0**-4, 448 * 2.0**-126)  # (relative to the largest magnitude of a group, absolute)
TINY = np.float32(2.0**-126)
BLOCK = 128


def codes(
    form: Format, raw: npt.NDArray[Any], shape: Sequence[int], scales: Floats | None, zeros: Bytes | None = None
) -> QuantizedParts:
    """Codes uint8 [..., K] and d float32 [..., groups]. ModelError for zero points, and for codes that are NaN."""
    stored = np.ascontiguousarray(as_blocks(raw, shape, form)).reshape(shape)
    broken = int(np.count_nonzero((stored & 0x7F) > E4M3FN.top))
    if broken:
        raise ModelError(f"{broken} of {stored.size} codes of {form.name} are NaN; weights must be finite")
    d, _ = scales_of(form, shape, scales, zeros)
    return QuantizedParts(form, stored, d)


def quantize(form: Format, values: npt.NDArray[Any]) -> Stored:
    """Round-to-nearest codes of float values [..., K], with float32 scales [..., groups]."""
    rows = as_values(values, form).reshape(values.shape)
    num_inputs, group = values.shape[-1], form.group or max(values.shape[-1], 1)
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -num_inputs % group)])
    groups = padded.reshape(*rows.shape[:-1], -1, group)
    peak = np.abs(groups).max(axis=-1, keepdims=True, initial=0)
    if form.name == "mxfp8":
        groups = np.where(np.abs(groups) < TINY, np.float32(0), groups)
        d = E8M0[e8m0_above(peak, E4M3FN.largest)]
    else:
        d = peak / np.float32(E4M3FN.largest)
        d = np.where(d < TINY, np.float32(0), d)
    with np.errstate(all="ignore"):
        ratio = np.where(d > 0, groups / d, np.float32(0))
    stored = E4M3FN.encode(ratio).reshape(padded.shape)[..., :num_inputs]
    return Stored(np.ascontiguousarray(stored), d[..., 0].astype(np.float32))


def scales_by_row(scales: Floats, shape: tuple[int, int], form: Format) -> Floats:
    """float32 [rows, groups of a row] of what checkpoints hold for codes [rows, K]: one scale, one per row, or one per block of
    128 x 128. ModelError for scales of another shape."""
    rows, num_in = shape
    wanted = (rows, form.num_groups(num_in))
    if scales.size == 1:
        one: Floats = np.broadcast_to(scales.reshape(1, 1), wanted).copy()
        return one
    if scales.shape in (wanted, wanted[: 2 - (wanted[1] == 1)]):
        whole: Floats = scales.reshape(wanted)
        return whole
    if form.group == BLOCK and scales.shape == (-(-rows // BLOCK), wanted[1]):
        repeated: Floats = np.repeat(scales, BLOCK, axis=0)[:rows]
        return repeated
    raise ModelError(
        f"{form.name} {shape} takes one scale, {wanted}, or blocks of 128 x 128; got scales {scales.shape}"
    )
