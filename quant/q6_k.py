"""q6_k: 256 elements in 16 groups of 16; each group has an int8 scale under one float16 scale.

    byte  0             128         192            208     210
          | 128 bytes   | 64 bytes  | 16 x int8    | d f16 |
          in halves of 128 elements: byte j (0..63) of a half of the first field holds the low nibbles of element j in
          bits 0-3 and of j + 64 in bits 4-7; byte j (0..31) of a half of the second holds the top two bits of elements
          j, j+32, j+64, j+96 in bits 0-1 .. 6-7

w = (d * scale) * q, codes -32..31 (stored plus 32). Packing gives the peak of a group code -32, so a value of the other
sign can be off by a step (peak / 32), plus what rounding scales to 8 bits can clip.
Source: block_q6_K of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant.blocks import (
    HALF_STEP,
    as_blocks,
    as_values,
    finish,
    load_fields,
    load_half,
    pack_symmetric,
    per_block,
    store_fields,
    unpack_blocks,
)
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts

FORMAT = BY_NAME["q6_k"]
ERROR_BOUND = (0.045, 32 * 129 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    return codes(blocks, (len(blocks), 256)).dequantize()


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes int8 -32..31, d, sub-scales int8 per 16 elements."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = per_block(load_half(blocks, 208), shape, shape[-1] // 256)
    scales = per_block(np.ascontiguousarray(blocks[:, 192:208]).view(np.int8), shape, shape[-1] // 16)
    q = load_fields(blocks[:, :128], 4, 64) | (load_fields(blocks[:, 128:192], 2, 32) << 4)
    return QuantizedParts(FORMAT, (q.view(np.int8) - np.int8(32)).reshape(shape), d, sub_scales=scales)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 256 * 210]."""
    d, scales, q = pack_symmetric(as_values(values, FORMAT), FORMAT, 16, -32, -128)
    raised = (q + 32).astype(np.uint8)
    return finish(FORMAT, values.shape, store_fields(raised & 15, 4, 64), store_fields(raised >> 4, 2, 32), scales, d)
