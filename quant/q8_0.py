"""q8_0: 32 elements share one float16 scale; codes are int8.

    byte  0       2                 34
          | d f16 | 32 int8 codes   |

w = d * q. Code -128 is legal in a file; packing uses -127..127, so half a step is peak / 254.
Source: block_q8_0 of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
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
    store_half,
    unpack_blocks,
)
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats, QuantizedParts

FORMAT = BY_NAME["q8_0"]
ERROR_BOUND = (1 / 254 + 2**-11, 127 * HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def _values(blocks: Bytes) -> Floats:
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= load_half(blocks, 0)
    return values


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes."""
    return unpack_blocks(raw, shape, FORMAT, _values)


def codes(raw: npt.NDArray[Any], shape: Sequence[int]) -> QuantizedParts:
    """Codes int8 and d."""
    blocks = as_blocks(raw, shape, FORMAT)
    d = per_block(load_half(blocks, 0), shape, shape[-1] // 32)
    return QuantizedParts(FORMAT, np.ascontiguousarray(blocks[:, 2:]).view(np.int8).reshape(shape), d)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """Round-to-nearest blocks of float values [..., K]: uint8 [..., K / 32 * 34]."""
    blocks = as_values(values, FORMAT)
    stored, d = store_half(np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127), FORMAT)
    return finish(FORMAT, values.shape, stored, nearest_codes(blocks, d, -127, 127).astype(np.int8))
