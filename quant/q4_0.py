"""q4_0: 32 elements share one float16 scale; codes 0..15 stand for -8..7 times the scale.

    byte  0       2                                18
          | d f16 | 16 bytes, two codes in each    |
          byte j: element j in bits 0-3, element j + 16 in bits 4-7

w = d * (q - 8). Packing gives the value of largest magnitude code 0; a value of the other sign and like magnitude can
then be off by one whole step d = peak / 8.
Source: block_q4_0 of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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
    nearest_codes,
    per_block,
    signed_peak,
    store_fields,
    store_half,
    unpack_blocks,
)
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts

FORMAT = BY_NAME["q4_0"]
ERROR_BOUND = (1 / 8 + 2**-10, 8 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    values = load_fields(blocks[:, 2:], 4, 16).astype(np.float32)
    values -= np.float32(8)
    values *= load_half(blocks, 0)
    return values


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..15 (zero point 8 still on them) and d."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = per_block(load_half(blocks, 0), shape, shape[-1] // 32)
    return QuantizedParts(FORMAT, load_fields(blocks[:, 2:], 4, 16).reshape(shape), d)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 32 * 18]."""
    blocks = as_values(values, FORMAT)
    stored, d = store_half(signed_peak(blocks) / np.float32(-8), FORMAT)
    q = (nearest_codes(blocks, d, -8, 7) + np.float32(8)).astype(np.uint8)
    return finish(FORMAT, values.shape, stored, store_fields(q, 4, 16))
