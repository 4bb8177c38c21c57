"""q3_k: 256 elements in 16 groups of 16; each group has a signed 6-bit scale under one float16 scale.

    byte  0            32          96           108     110
          | 32 bytes   | 64 bytes  | 12 bytes   | d f16 |
          first field: bit i of byte j is the third bit of element 32 i + j (set: 0 is taken off; clear: 4 is)
          second field, in halves of 128 elements: byte j holds elements j, j+32, j+64, j+96 in bits 0-1, 2-3, 4-5, 6-7
          third field, scale + 32 of group g: low four bits of groups 0-7 in the low, of 8-15 in the high nibbles of
          bytes 0-7; top two bits of group 4 k + j in bits 2 k, 2 k + 1 of byte 8 + j

w = (d * scale) * q, codes -4..3. Packing gives the peak of a group code -4, so a value of the other sign can be off by
a step (peak / 4), plus what rounding scales to 6 bits can clip.
Source: block_q3_K of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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

FORMAT = BY_NAME["q3_k"]
ERROR_BOUND = (0.29, 4 * 33 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    return codes(blocks, (len(blocks), 256)).dequantize()


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes int8 -4..3, d, sub-scales int8 -32..31 per 16 elements."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = per_block(load_half(blocks, 108), shape, shape[-1] // 256)
    packed = load_fields(blocks[:, 96:104], 4, 8) | (load_fields(blocks[:, 104:108], 2, 4) << 4)
    scales = per_block(packed.view(np.int8) - np.int8(32), shape, shape[-1] // 16)
    q = load_fields(blocks[:, 32:96], 2, 32) | (load_fields(blocks[:, :32], 1, 32) << 2)
    return QuantizedParts(FORMAT, (q.view(np.int8) - np.int8(4)).reshape(shape), d, sub_scales=scales)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 256 * 110]."""
    d, scales, q = pack_symmetric(as_values(values, FORMAT), FORMAT, 16, -4, -32)
    raised, six = (q + 4).astype(np.uint8), (scales + 32).astype(np.uint8)
    packed = (store_fields(six & 15, 4, 8), store_fields(six >> 4, 2, 4))
    return finish(FORMAT, values.shape, store_fields(raised >> 2, 1, 32), store_fields(raised & 3, 2, 32), *packed, d)
