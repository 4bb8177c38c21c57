"""Numpy twin of csrc_common/packed/panels.h and flips.h, and stored rows to feed it with.

`stored(name, n, k)` gives rows [n, row_bytes] uint8 of any format with sane scales; `panels(name, raw, k)` the packed bytes.
Formats with scales apart are in `apart.py`, whose names say more than the format.
"""

from __future__ import annotations

import platform

import numpy as np

from octavo.quant import load
from octavo.quant.parts import QuantizedParts

HAS_MIN, ZERO8 = 1, 2
#: format -> (op suffix of linear_*, flags)
PACKED = {
    "f32": ("f32", 0),
    "f16": ("f16", 0),
    "bf16": ("bf16", 0),
    "q4_0": ("q4g32", ZERO8),
    "q4_1": ("q4g32", HAS_MIN),
    "q5_0": ("q5g32", 0),
    "q5_1": ("q5g32", HAS_MIN),
    "q8_0": ("q8g32", 0),
    "q2_k": ("q2k", HAS_MIN),
    "q3_k": ("q3k", 0),
    "q4_k": ("q4k", HAS_MIN),
    "q5_k": ("q5k", HAS_MIN),
    "q6_k": ("q6k", 0),
}
DENSE = ("f32", "f16", "bf16")
BLOCKS = tuple(name for name in PACKED if name not in DENSE)
_HALVES = {  # bytes of the float16 fields in a block
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,), "q2_k": (80, 82), "q3_k": (108,),
    "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
}  # fmt: skip
#: packed kind -> bits of the low and the high plane, zero point, where codes are kept in planes (csrc_common/packed/planes.h)
PLANES = {"q6k": (4, 2, 32), "q5k": (4, 1, 0), "q3k": (2, 1, 4), "q2k": (2, 0, 0), "q5g32": (4, 1, 0)}
#: what the chip family's products want of codes (csrc_common/packed/flips.h)
BYTE_FLIP, NIBBLE_FLIP = (
    (np.uint8(0), np.uint8(0x88)) if platform.machine() == "aarch64" else (np.uint8(128), np.uint8(0))
)
_DENSE_TYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def stored(name: str, n: int, k: int, seed: int = 0) -> np.ndarray:
    """Random rows: all code and sub-scale bytes are random, float16 scales are around 0.01, dense values are normal."""
    rng = np.random.default_rng(seed)
    if name in DENSE:
        values = rng.standard_normal((n, k)).astype(np.float32)
        if name == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(n, 2 * k)
        return values.astype(_DENSE_TYPES[name]).view(np.uint8).reshape(n, -1)
    form = load.format_named(name)
    raw = rng.integers(0, 256, (n * k // form.block_size, form.block_bytes), np.uint8)
    for at in _HALVES[name]:
        raw[:, at : at + 2] = rng.normal(0, 0.01, (len(raw), 1)).astype(np.float16).view(np.uint8)
    return raw.reshape(n, -1)


def packed_bytes(name: str, n: int, k: int) -> int:
    """Size of the packed weight."""
    return panels(name, np.zeros((16, stored(name, 1, k).shape[1]), np.uint8), k).size * -(-n // 16)


def panels(name: str, raw: np.ndarray, k: int) -> np.ndarray:
    """uint8 bytes of the panels of `raw` [n, row_bytes]."""
    rows = np.concatenate([raw, np.zeros((-len(raw) % 16, raw.shape[1]), np.uint8)])
    if name in DENSE:
        return _dense(name, rows, k)
    parts = load.codes(name, np.ascontiguousarray(rows).reshape(-1), (len(rows), k))
    kind, flags = PACKED[name]
    per = 32 if kind.endswith("g32") else 256
    lanes = (
        parts.codes.astype(np.int16).reshape(-1, 16, k // per, per).transpose(0, 2, 1, 3)
    )  # [panel, record, lane, input]
    fields = [planes(lanes, *PLANES[kind]) if kind in PLANES else nibbles(lanes) if kind[1] == "4" else quads(lanes)]
    if flags & ZERO8:
        fields[0] ^= NIBBLE_FLIP
    if per == 256:
        fields += _sub_scales(parts, kind)
    halves = [parts.d, parts.m if parts.m is not None else parts.dmin]
    fields += [_lanes(half.astype(np.float16)) for half in halves if half is not None]
    return np.concatenate(fields, axis=2).reshape(-1)


def _dense(name: str, rows: np.ndarray, k: int) -> np.ndarray:
    values = rows.view(np.uint32 if name == "f32" else np.uint16).reshape(len(rows), k)
    values = np.pad(values, ((0, 0), (0, -k % 32)))
    step = 2 if name == "bf16" else 1
    tiles = values.reshape(-1, 16, values.shape[1] // step, step).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(tiles).view(np.uint8).reshape(-1)


def quads(lanes: np.ndarray) -> np.ndarray:
    p, r, _, count = lanes.shape
    fours = lanes.reshape(p, r, 16, count // 4, 4).transpose(0, 1, 3, 2, 4)
    return fours.astype(np.uint8).reshape(p, r, -1)


def nibbles(lanes: np.ndarray) -> np.ndarray:
    p, r, _, count = lanes.shape
    halves = lanes.reshape(p, r, 16, count // 32, 2, 4, 4)  # lane, sub-block, half, c, i
    joined = halves[..., 0, :, :] | halves[..., 1, :, :] << 4
    return joined.transpose(0, 1, 3, 4, 2, 5).astype(np.uint8).reshape(p, r, -1)


def planes(lanes: np.ndarray, low: int, high: int, zero: int) -> np.ndarray:
    p, r, _, count = lanes.shape
    codes = (lanes + zero).astype(np.uint8).reshape(p, r, 16, count // 32, 8, 4).transpose(0, 1, 3, 4, 2, 5)
    fields = []  # codes: [panel, record, chunk, dword, lane, input]
    for bits, plane in ((low, codes & ((1 << low) - 1)), (high, codes >> low)):
        if bits:
            parts = plane.reshape(*plane.shape[:3], 8 // bits, bits, 16, 4)
            at = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1, 1, 1)
            fields.append(np.bitwise_or.reduce(parts << at, axis=3).reshape(*plane.shape[:3], -1))
    return np.concatenate(fields, axis=3).reshape(p, r, -1)


def _lanes(per_record: np.ndarray) -> np.ndarray:
    """[n, records] -> bytes [panel, record, 16 lanes]."""
    tiles = per_record.reshape(-1, 16, per_record.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles).view(np.uint8).reshape(*tiles.shape[:2], -1)


def _sub_scales(parts: QuantizedParts, kind: str) -> list[np.ndarray]:
    if kind == "q2k":
        return [_sub_field(parts, parts.sub_scales | parts.sub_mins << np.uint8(4))]
    return [_sub_field(parts, field) for field in (parts.sub_scales, parts.sub_mins) if field is not None]


def _sub_field(parts: QuantizedParts, values: np.ndarray) -> np.ndarray:
    """[n, groups] -> bytes [panel, record, groups of a record * 16 lanes]."""
    blocks = parts.d.shape[1]
    tiles = values.view(np.uint8).reshape(-1, 16, blocks, values.shape[1] // blocks)
    return np.ascontiguousarray(tiles.transpose(0, 2, 3, 1)).reshape(len(tiles), blocks, -1)
