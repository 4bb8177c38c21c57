"""q5_k: 256 elements in 8 groups of 32; each group has a 6-bit scale and a 6-bit minimum under two float16 scales.

    byte  0       2          4            16           48            176
          | d f16 | dmin f16 | 12 bytes   | 32 bytes   | 128 bytes   |
          third field: scales and minima, see `scale_min.py`
          fourth field: bit i of byte j is the fifth bit of element 32 i + j
          fifth field, in quarters of 64 elements: byte j holds low nibbles of element j in bits 0-3, j + 32 in bits 4-7

w = (d * scale) * q - (dmin * minimum), codes 0..31. Packing bound: half a step of the largest group (range / 62), plus
what rounding scales and minima to 6 bits can clip.
Source: block_q5_K of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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

FORMAT = BY_NAME["q5_k"]
ERROR_BOUND = (0.055, 63 * 33 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    return codes(blocks, (len(blocks), 256)).dequantize()


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..31, d, dmin, sub-scales and sub-minima uint8 0..63 per 32 elements."""
    blocks = as_blocks(raw, shape, FORMAT)
    d, dmin = (per_block(load_half(blocks, at), shape, shape[-1] // 256) for at in (0, 2))
    scales, minima = (per_block(field, shape, shape[-1] // 32) for field in scale_min.load(blocks[:, 4:16]))
    q = load_fields(blocks[:, 48:], 4, 32) | (load_fields(blocks[:, 16:48], 1, 32) << 4)
    return QuantizedParts(FORMAT, q.reshape(shape), d, dmin=dmin, sub_scales=scales, sub_mins=minima)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 256 * 176]."""
    d, dmin, scales, minima, q = pack_asymmetric(as_values(values, FORMAT), FORMAT, 32, 31, 63)
    fields = (scale_min.store(scales, minima), store_fields(q >> 4, 1, 32), store_fields(q & 15, 4, 32))
    return finish(FORMAT, values.shape, d, dmin, *fields)
