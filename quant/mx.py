"""Microscaling: E8M0 scales and MXFP4 blocks, 32 numbers E2M1 that share a scale.

    E8M0: value 2^(byte - 127); byte 0 is 2^-127, 255 is NaN
    E2M1: sign, 2 bits of exponent, 1 of fraction: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives

Two orders of nibbles are in use: GGUF's block is a scale byte and 16 bytes, byte j holding element j (low) and j + 16
(high); packed tensors hold neighbours, byte j elements 2 j (low) and 2 j + 1 (high), their scales apart.
csrc_common/vec/fp8.h is the twin in C++.
Source: OCP Microscaling Formats (MX) Specification 1.0; block_mxfp4 of ggml (github.com/ggml-org/ggml, src/ggml-common.h).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import ModelError
from octavo.quant.blocks import load_fields
from octavo.quant.fp8 import E2M1, E8M0

Codes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
BLOCK = 32


def mxfp4_of_blocks(raw: npt.NDArray[Any]) -> Floats:
    """float32 [..., blocks * 32] of GGUF blocks, uint8 [..., blocks * 17]. ModelError for a scale that is NaN."""
    if raw.dtype != np.uint8 or raw.shape[-1] % 17:
        raise ModelError(f"rows of MXFP4 blocks are a multiple of 17 bytes of uint8; got {raw.shape} of {raw.dtype}")
    blocks = raw.reshape(-1, 17)
    values = E2M1[load_fields(blocks[:, 1:], 4, 16)] * _scales(blocks[:, :1])
    return values.reshape(*raw.shape[:-1], raw.shape[-1] // 17 * BLOCK)


def mxfp4_of_pairs(packed: npt.NDArray[Any], scales: npt.NDArray[Any]) -> Floats:
    """float32 [..., K] of neighbours in bytes, uint8 [..., K / 2], and scales, uint8 [..., K / 32]."""
    if packed.shape[:-1] != scales.shape[:-1] or packed.shape[-1] * 2 != scales.shape[-1] * BLOCK:
        raise ModelError(f"MXFP4 {packed.shape} needs a scale per 16 bytes of a row; got scales {scales.shape}")
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*scales.shape, BLOCK)
    return (E2M1[codes] * _scales(scales)[..., None]).reshape(*packed.shape[:-1], -1)


def e8m0_above(peaks: Floats, largest: float) -> npt.NDArray[np.int64]:
    """Codes 0 .. 254 of the least powers of two s with `peaks` <= `largest` * s."""
    mantissa, exponent = np.frexp(peaks.astype(np.float64))
    top, top_exponent = np.frexp(largest)
    found = np.where(peaks > 0, exponent - top_exponent + (mantissa > top) + 127, 0)
    clipped: npt.NDArray[np.int64] = np.clip(found, 0, 254).astype(np.int64)
    return clipped


def e8m0_codes(scales: Floats) -> Codes:
    """Codes of float32 powers of two, 2^-127 among them."""
    stored: Codes = (np.frexp(scales.astype(np.float64))[1] + 126).astype(np.uint8)
    return stored


def _scales(codes: Codes) -> Floats:
    broken = int(np.count_nonzero(codes == 255))
    if broken:
        raise ModelError(f"{broken} of {codes.size} scales of MXFP4 are NaN; weights must be finite")
    return E8M0[codes]
