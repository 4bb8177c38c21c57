"""bf16: the upper half of a float32, little-endian, one element per 2 bytes.

Packing rounds half to even (|error| <= 2^-8 |x|) and turns |x| < 2^-126 into a signed zero and every NaN into a quiet
one: what the x86 conversion instruction does, and the rule for bfloat16 everywhere in this project. Unpacking is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant.blocks import as_blocks
from octavo.quant.formats import BY_NAME
from octavo.quant.parts import Bytes, Floats

FORMAT = BY_NAME["bf16"]
_CHUNK = 1 << 15  # values, so that what is made on the way stays in L2
ERROR_BOUND = (2.0**-8, 2.0**-126)  # (relative to the largest magnitude of a block, absolute)


def unpack(raw: npt.NDArray[Any], shape: Sequence[int]) -> Floats:
    """float32 of `shape` from its stored bytes; exact, denormals kept."""
    halves = np.ascontiguousarray(as_blocks(raw, shape, FORMAT)).view("<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32).reshape(shape)


def pack(values: npt.NDArray[Any]) -> Bytes:
    """The stored bytes of float values [..., K]: uint8 [..., 2 K]."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    flat, packed = bits.reshape(-1), np.empty(bits.size, "<u2")
    for start in range(0, flat.size, _CHUNK):
        packed[start : start + _CHUNK] = _rounded(flat[start : start + _CHUNK])
    found: Bytes = packed.reshape(bits.shape).view(np.uint8)
    return found


def _rounded(bits: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
    """The upper halves, each pass in place: memory would be the cost of them all."""
    rounded: npt.NDArray[np.uint32] = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= 16
    magnitude = bits & np.uint32(0x7FFFFFFF)
    if magnitude.max(initial=0) > 0x7F800000:
        rounded = np.where(magnitude > 0x7F800000, (bits >> 16) | np.uint32(0x40), rounded)
    magnitude -= np.uint32(1)  # 0 is greatest now
    if magnitude.min(initial=0xFFFFFFFF) < 0x007FFFFF:
        rounded = np.where(magnitude < 0x007FFFFF, (bits >> 16) & np.uint32(0x8000), rounded)
    return rounded
