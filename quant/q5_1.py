"""q5_1: 32 elements share a float16 scale and a float16 minimum; codes 0..31.

    byte  0       2       4        8                                24
          | d f16 | m f16 | qh u32 | 16 bytes, two low nibbles each |
          byte j: low nibble of element j in bits 0-3, of element j + 16 in bits 4-7
          bit i of qh: fifth bit of element i

w = d * q + m. Packing spreads the codes over the block's range: half a step is range / 62, at most peak / 31.
Source: block_q5_1 of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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
    load_half,
    nearest_codes,
    per_block,
    store_fields,
    store_half,
    unpack_blocks,
)
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts
from octavo.quant.q5_0 import five_bit_codes

FORMAT = BY_NAME["q5_1"]
ERROR_BOUND = (1 / 31 + 2**-9, 32 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    values = five_bit_codes(blocks[:, 4:8], blocks[:, 8:]).astype(np.float32)
    values *= load_half(blocks, 0)
    values += load_half(blocks, 2)
    return values


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..31, d and m."""
    blocks = as_blocks(raw, shape, FORMAT)
    d, m = (per_block(load_half(blocks, at), shape, shape[-1] // 32) for at in (0, 2))
    return QuantizedParts(FORMAT, five_bit_codes(blocks[:, 4:8], blocks[:, 8:]).reshape(shape), d, m=m)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 32 * 24]."""
    blocks = as_values(values, FORMAT)
    stored_m, m = store_half(blocks.min(axis=1, keepdims=True), FORMAT)
    shifted = blocks - m
    stored, d = store_half(shifted.max(axis=1, keepdims=True) / np.float32(31), FORMAT)
    q = nearest_codes(shifted, d, 0, 31).astype(np.uint8)
    high = np.packbits(q >> 4, axis=1, bitorder="little")
    return finish(FORMAT, values.shape, stored, stored_m, high, store_fields(q & np.uint8(15), 4, 16))
