"""q2_k: 256 elements in 16 groups of 16; each group has a 4-bit scale and a 4-bit minimum under two float16 scales.

    byte  0            16          80      82         84
          | 16 bytes   | 64 bytes  | d f16 | dmin f16 |
          byte g of the first field: scale of group g in bits 0-3, minimum in bits 4-7
          second field, in halves of 128 elements: byte j holds elements j, j+32, j+64, j+96 in bits 0-1, 2-3, 4-5, 6-7

w = (d * scale) * q - (dmin * minimum), codes 0..3. Packing bound: half a step of the largest group (range / 6), plus
what rounding scales and minima to 4 bits can clip.
Source: block_q2_K of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from octavo.quant.blocks import (
    HALF_STEP,
    as_blocks,
    as_values,
    finish,
    load_fields,
    load_half,
    pack_asymmetric,
    per_block,
    store_fields,
    unpack_blocks,
)
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts

FORMAT = BY_NAME["q2_k"]
ERROR_BOUND = (0.40, 15 * 5 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    return codes(blocks, (len(blocks), 256)).dequantize()


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..3, d, dmin, sub-scales and sub-minima uint8 0..15 per 16 elements."""
    blocks = as_blocks(raw, shape, FORMAT)
    d, dmin = (per_block(load_half(blocks, at), shape, shape[-1] // 256) for at in (80, 82))
    packed = blocks[:, :16]
    scales, minima = (per_block(field, shape, shape[-1] // 16) for field in (packed & 15, packed >> 4))
    q = load_fields(blocks[:, 16:80], 2, 32).reshape(shape)
    return QuantizedParts(FORMAT, q, d, dmin=dmin, sub_scales=scales, sub_mins=minima)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 256 * 84]."""
    d, dmin, scales, minima, q = pack_asymmetric(as_values(values, FORMAT), FORMAT, 16, 3, 15)
    return finish(FORMAT, values.shape, scales | (minima << 4), store_fields(q, 2, 32), d, dmin)
