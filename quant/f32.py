"""f32: IEEE single precision, little-endian, one element per 4 bytes.

unpack copies nothing when the bytes are aligned; pack is exact (error 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant.blocks import as_blocks
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats

FORMAT = BY_NAME["f32"]
ERROR_BOUND = (0.0, 0.0)  # (relative to the largest magnitude of a block, absolute)


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape`: a view of `raw` where it is contiguous (and then as writable as `raw` is)."""
    return np.ascontiguousarray(as_blocks(raw, shape, FORMAT)).view("<f4").reshape(shape)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """The stored bytes of float values [..., K]: uint8 [..., 4 K]."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)
