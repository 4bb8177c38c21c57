"""The 12-byte field of q4_k and q5_k: eight 6-bit scales (a..h) and eight 6-bit minima (A..H) of a 256-element block.

    byte 0..3    scale 0..3 in bits 0-5, top two bits of scale 4..7 in bits 6-7
    byte 4..7    minimum 0..3 in bits 0-5, top two bits of minimum 4..7 in bits 6-7
    byte 8..11   low four bits of scale 4..7 in bits 0-3, of minimum 4..7 in bits 4-7

Source: `get_scale_min_k4` of ggml (github.com/ggml-org/ggml, src/ggml-quants.c).
"""

from __future__ import annotations

import numpy as np

from octavo.quant.parts import Bytes

NUM_BYTES = 12


def load(field: Bytes) -> tuple[Bytes, Bytes]:
    """(scales, minima), both uint8 [num_blocks, 8] in 0..63, of `field` uint8 [num_blocks, 12]."""
    first, second, third = field[:, 0:4], field[:, 4:8], field[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, minima


def store(scales: Bytes, minima: Bytes) -> Bytes:
    """The inverse of `load`."""
    first = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    second = minima[:, :4] | ((minima[:, 4:] >> 4) << 6)
    third = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return np.concatenate([first, second, third], axis=1)
