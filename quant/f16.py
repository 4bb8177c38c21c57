"""f16: IEEE half precision, little-endian, one element per 2 bytes; denormals kept, infinities and NaN pass through.

Packing rounds half to even: |error| <= 2^-11 |x|, or 2^-25 where the result is a denormal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import ModelError
from octavo.quant.blocks import HALF_STEP, as_blocks
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats

FORMAT = BY_NAME["f16"]
ERROR_BOUND = (2.0**-11, HALF_STEP)  # (relative to the largest magnitude of a block, absolute)


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes; exact."""
    return np.ascontiguousarray(as_blocks(raw, shape, FORMAT)).view("<f2").astype(np.float32).reshape(shape)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """The stored bytes of float values [..., K]: uint8 [..., 2 K]. ModelError if one would become infinite."""
    source = np.ascontiguousarray(values, np.float32)
    with np.errstate(over="ignore"):
        stored = source.astype("<f2")
    if np.any(np.isinf(stored) & np.isfinite(source)):
        raise ModelError("cannot pack to f16: a value passes 65504, the largest float16; bf16 holds it")
    return stored.view(np.uint8)
