"""mxfp4: GGUF's block of 32 numbers E2M1 that share a power of two; layout and tables in `mx.py`.

    block  scale byte E8M0 | 16 bytes, byte j holding elements j (low) and j + 16 (high)

Packing takes the least power of two with amax <= 6 s, codes to nearest, ties to the even code; no code is -0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant import mx
from octavo.quant.blocks import as_blocks, as_values, finish, load_fields, unpack_blocks
from octavo.quant.formats import BY_NAME
from octavo.quant.fp8 import E2M1, E8M0
from octavo.quant.parts import Bytes, Floats, QuantizedParts

FORMAT = BY_NAME["mxfp4"]
ERROR_BOUND = (0.25, 4 * 2.0**-127)  # (relative to the largest magnitude of a block, absolute)
_MIDDLES = (E2M1[:7] + E2M1[1:8]) / np.float32(2)


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored blocks."""
    return unpack_blocks(raw, shape, FORMAT, mx.mxfp4_of_blocks)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..15 [..., K] and d float32 [..., K / 32], powers of two (NaN for a scale byte of 255)."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = E8M0[blocks[:, 0]].reshape(*shape[:-1], -1)
    return QuantizedParts(FORMAT, load_fields(blocks[:, 1:], 4, 16).astype(np.uint8).reshape(shape), d)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Stored blocks of float values [..., K]: uint8 [..., 17 K / 32]."""
    blocks = as_values(values, FORMAT)
    scale = mx.e8m0_above(np.abs(blocks).max(axis=1, keepdims=True), 6.0)
    ratio = np.ldexp(np.abs(blocks).astype(np.float64), 127 - scale.astype(np.int64)).astype(np.float32)
    code = np.searchsorted(_MIDDLES, ratio, side="left")
    is_tie = ratio == _MIDDLES[np.minimum(code, 6)]
    code = code + (is_tie & (code % 2 == 1))
    code = np.where((blocks < 0) & (code > 0), code + 8, code).astype(np.uint8)
    return finish(FORMAT, values.shape, scale.astype(np.uint8), code[:, :16] | code[:, 16:] << 4)
