"""w8a8: int8 codes, one scale per row (output), kept apart; inputs meet it as int8 with one scale per token.

    codes   [rows, K] int8, row-major      scales  [rows] or [rows, 1], f32, f16 or bf16, widened exactly

w = s * q. Code -128 is legal in a file; packing uses -127..127 and s = amax / 127 in float32 (zero where that is under
2^-126), so half a step is peak / 254. K <= 131,072: then |sum of 127 * 128| < 2^31, and int32 sums are exact.
Source: the int-quantized layout of compressed-tensors (github.com/vllm-project/compressed-tensors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant.blocks import as_blocks, as_values, nearest_codes, scales_of
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts, Stored

FORMAT = BY_NAME["w8a8"]
ERROR_BOUND = (1 / 254 + 2**-20, 128 * 2.0**-126)  # (relative to the largest magnitude of a row, absolute)
TINY = np.float32(2.0**-126)


def codes(
    raw: npt.NDArray[Any], shape: Sequence[int], scales: Floats | None, zeros: Bytes | None = None
) -> QuantizedParts:
    """Codes int8 [..., K] and d [..., 1]. ModelError for zero points, which the format does not have."""
    stored = np.ascontiguousarray(as_blocks(raw, shape, FORMAT)).view(np.int8).reshape(shape)
    d, _ = scales_of(FORMAT, shape, scales, zeros)
    return QuantizedParts(FORMAT, stored, d)


def quantize(values: npt.NDArray[Any]) -> Stored:
    """Round-to-nearest codes of float values [..., K], with one float32 scale per row."""
    rows = as_values(values, FORMAT).reshape(values.shape)
    d = np.abs(rows).max(axis=-1, keepdims=True, initial=0) / np.float32(127)
    d = np.where(d < TINY, np.float32(0), d)
    stored = nearest_codes(rows, d, -127, 127).astype(np.int8).view(np.uint8)
    return Stored(stored, d)
