"""i4g32, i4g64, i4g128: 4-bit codes in groups of 32, 64 or 128 inputs, scales and zero points kept apart.

    codes   [rows, K / 8] int32 little-endian: bits 4 i .. 4 i + 3 of word j are the code 0..15 of element 8 j + i
    scales  [rows, ceil(K / group)], f32, f16 or bf16, widened exactly
    zeros   [rows, ceil(K / group)] uint8 0..15, or none: 8

w = s * (q - z). Packing is symmetric: the value of largest magnitude takes code 0 (that is -8), and s = that value / -8
rounded to bfloat16; a value of the other sign and like magnitude can then be off by one whole step.
Source: the pack-quantized layout of compressed-tensors (github.com/vllm-project/compressed-tensors), which packs zero
points the same way, along the rows; the loader takes those apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant import bf16
from octavo.quant.blocks import as_blocks, as_values, load_fields, nearest_codes, scales_of, signed_peak
from octavo.quant.formats import Format
from octavo.quant.parts import Bytes, Floats, QuantizedParts, Stored

ERROR_BOUND = (1 / 8 + 2**-8, 16 * 2.0**-126)  # (relative to the largest magnitude of a group, absolute)


def codes(
    form: Format, raw: npt.NDArray[Any], shape: Sequence[int], scales: Floats | None, zeros: Bytes | None
) -> QuantizedParts:
    """Codes uint8 0..15 [..., K], d float32 and zeros uint8 (or None) [..., groups]."""
    nibbles = load_fields(np.ascontiguousarray(as_blocks(raw, shape, form)).reshape(-1, 1), 4, 1).reshape(shape)
    d, z = scales_of(form, shape, scales, zeros)
    return QuantizedParts(form, nibbles, d, zeros=z)


def quantize(form: Format, values: npt.NDArray[Any]) -> Stored:
    """Round-to-nearest codes of float values [..., K], symmetric, with bfloat16 scales (as float32) per group."""
    rows = as_values(values, form).reshape(values.shape)
    num_inputs = values.shape[-1]
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -num_inputs % form.group)])
    groups = padded.reshape(*rows.shape[:-1], -1, form.group)
    wanted = signed_peak(groups) / np.float32(-8)
    d = bf16.unpack(bf16.pack(wanted).reshape(-1), wanted.shape)
    q = (nearest_codes(groups, d, -8, 7) + np.float32(8)).astype(np.uint8).reshape(padded.shape)[..., :num_inputs]
    pairs = q.reshape(*rows.shape[:-1], -1, 2)
    return Stored(pairs[..., 0] | pairs[..., 1] << 4, d[..., 0])
