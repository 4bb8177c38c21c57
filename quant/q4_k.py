"""q4_k: 256 elements in 8 groups of 32; each group has a 6-bit scale and a 6-bit minimum under two float16 scales.

    byte  0       2          4            16            144
          | d f16 | dmin f16 | 12 bytes   | 128 bytes   |
          third field: scales and minima, see `scale_min.py`
          fourth field, in quarters of 64 elements: byte j of a quarter holds element j in bits 0-3, j + 32 in bits 4-7

w = (d * scale) * q - (dmin * minimum), codes 0..15. Packing bound: half a step of the largest group (range / 30), plus
what rounding scales and minima to 6 bits can clip.
Source: block_q4_K of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from octavo.quant import scale_min
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

FORMAT = BY_NAME["q4_k"]
ERROR_BOUND = (0.09, 63 * 17 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    return codes(blocks, (len(blocks), 256)).dequantize()


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..15, d, dmin, sub-scales and sub-minima uint8 0..63 per 32 elements."""
    blocks = as_blocks(raw, shape, FORMAT)
    d, dmin = (per_block(load_half(blocks, at), shape, shape[-1] // 256) for at in (0, 2))
    scales, minima = (per_block(field, shape, shape[-1] // 32) for field in scale_min.load(blocks[:, 4:16]))
    q = load_fields(blocks[:, 16:], 4, 32).reshape(shape)
    return QuantizedParts(FORMAT, q, d, dmin=dmin, sub_scales=scales, sub_mins=minima)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 256 * 144]."""
    d, dmin, scales, minima, q = pack_asymmetric(as_values(values, FORMAT), FORMAT, 32, 15, 63)
    return finish(FORMAT, values.shape, d, dmin, scale_min.store(scales, minima), store_fields(q, 4, 32))
