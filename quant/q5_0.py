"""q5_0: 32 elements share one float16 scale; codes 0..31 stand for -16..15 times the scale.

    byte  0       2        6                                22
          | d f16 | qh u32 | 16 bytes, two low nibbles each |
          byte j: low nibble of element j in bits 0-3, of element j + 16 in bits 4-7
          bit i of qh: fifth bit of element i

w = d * (q - 16). Packing gives the value of largest magnitude code 0; a value of the other sign and like magnitude can
then be off by one whole step d = peak / 16.
Source: block_q5_0 of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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

FORMAT = BY_NAME["q5_0"]
ERROR_BOUND = (1 / 16 + 2**-10, 16 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def five_bit_codes(high: Bytes, low: Bytes) -> Bytes:
    """uint8 [num_blocks, 32] from the bytes of qh [num_blocks, 4] and of the nibbles [num_blocks, 16]."""
    q = load_fields(low, 4, 16)
    q |= np.unpackbits(high, axis=1, bitorder="little") << np.uint8(4)
    return q


def _values(blocks: Bytes) -> Floats:
    values = five_bit_codes(blocks[:, 2:6], blocks[:, 6:]).astype(np.float32)
    values -= np.float32(16)
    values *= load_half(blocks, 0)
    return values


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes uint8 0..31 (zero point 16 still on them) and d."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = per_block(load_half(blocks, 0), shape, shape[-1] // 32)
    return QuantizedParts(FORMAT, five_bit_codes(blocks[:, 2:6], blocks[:, 6:]).reshape(shape), d)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 32 * 22]."""
    blocks = as_values(values, FORMAT)
    stored, d = store_half(signed_peak(blocks) / np.float32(-16), FORMAT)
    q = (nearest_codes(blocks, d, -16, 15) + np.float32(16)).astype(np.uint8)
    high = np.packbits(q >> 4, axis=1, bitorder="little")
    return finish(FORMAT, values.shape, stored, high, store_fields(q & 15, 4, 16))
