"""Inputs of the self-test: values that depend on a name only, by integer arithmetic, the same on every machine and numpy.

Floats are multiples of 2^-21 in [-2, 2). Block formats get random codes; their scales are made small and finite, because
random bytes would hold infinities.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.types import Batch, GroupKind, KVDtype, KVGroup, KVSpec, RawTensor
from octavo.quant.formats import format_named

#: byte offsets of the float16 fields of a block
HALF_FIELDS: dict[str, tuple[int, ...]] = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
FORMATS = ("f32", "f16", "bf16", *HALF_FIELDS)
#: formats with scales apart, and the layouts that are tested: (type of the scales, has zero points)
APART: dict[str, tuple[tuple[str, bool], ...]] = {
    "w8a8": (("f32", False),),
    "i4g32": (("bf16", False), ("f32", True)),
    "i4g64": (("f16", False), ("bf16", True)),
    "i4g128": (("f32", False), ("f16", True)),
}
LINEAR_FORMATS = (*FORMATS, *APART)
#: weights of small floats, which GPUs have kernels for, and the type of their scales
GPU_FORMATS = {"f8row": "f32", "f8g128": "bf16", "mxfp8": "f8_e8m0", "mxfp4": ""}


def words(name: str, count: int) -> NDArray[np.uint32]:
    """`count` well mixed words."""
    x = np.arange(count, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode())) * np.uint64(1 << 20)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    out: NDArray[np.uint32] = (x >> np.uint64(32)).astype(np.uint32)
    return out


def values(name: str, *shape: int) -> NDArray[np.float32]:
    """float32 in [-2, 2)."""
    steps = (words(name, int(np.prod(shape))) >> np.uint32(9)).astype(np.int32) - (1 << 22)
    out: NDArray[np.float32] = (steps.astype(np.float32) * np.float32(2.0**-21)).reshape(shape)
    return out


def tensor(name: str, form: str, rows: int, width: int) -> RawTensor:
    """A stored tensor [rows, width]."""
    if form == "f32":
        data = values(name, rows, width).view(np.uint8)
    elif form == "f16":
        data = values(name, rows, width).astype(np.float16).view(np.uint8)
    elif form == "bf16":
        data = (values(name, rows, width).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    else:
        data = _blocks(name, form, rows * width)
    return RawTensor(name, form, (rows, width), np.ascontiguousarray(data).reshape(-1))


def tensors(name: str, form: str, rows: int, width: int) -> list[RawTensor]:
    """A stored tensor [rows, width] in every layout that the format is tested in."""
    if form in GPU_FORMATS:
        return [_small_floats(name, form, rows, width)]
    if form not in APART:
        return [tensor(name, form, rows, width)]
    row = format_named(form)
    codes = (words(name, row.num_bytes((rows, width))) >> np.uint32(24)).astype(np.uint8)
    shape = (rows, row.num_groups(width))
    count = int(np.prod(shape))
    zeros = (words(f"{name} zeros", count) >> np.uint32(28)).astype(np.uint8)
    out = []
    for kind, has_zeros in APART[form]:
        scales = RawTensor("scales", kind, shape, _small(f"{name} {kind}", kind, count))
        kept = RawTensor("zeros", "u8", shape, zeros) if has_zeros else None
        out.append(RawTensor(name, form, (rows, width), codes, scales, kept))
    return out


def _small_floats(name: str, form: str, rows: int, width: int) -> RawTensor:
    """Any codes but NaN; powers of two from 2^-6 to 2."""
    row = format_named(form)
    codes = (words(name, row.num_bytes((rows, width))) >> np.uint32(24)).astype(np.uint8)
    if form == "mxfp4":
        blocks = codes.reshape(-1, row.block_bytes)
        blocks[:, 0] = 121 + blocks[:, 0] % 8
        return RawTensor(name, form, (rows, width), codes)
    codes = np.where((codes & 0x7F) == 0x7F, codes - np.uint8(1), codes)
    shape, kind = (rows, row.num_groups(width)), GPU_FORMATS[form]
    count = shape[0] * shape[1]
    powers = (121 + (words(f"{name} powers", count) >> np.uint32(29))).astype(np.uint8)
    stored = powers if kind == "f8_e8m0" else _small(f"{name} {kind}", kind, count)
    return RawTensor(name, form, (rows, width), codes, RawTensor("scales", kind, shape, stored))


def _small(name: str, kind: str, count: int) -> NDArray[np.uint8]:
    """Stored floats of any sign, of magnitude 2^-6 to 2^-5."""
    word = words(name, count)
    keep, exponent = {"f32": (0x807FFFFF, 0x3C800000), "f16": (0x83FF, 0x2400), "bf16": (0x807F, 0x3C80)}[kind]
    small = (word & np.uint32(keep)) | np.uint32(exponent)
    out: NDArray[np.uint8] = (small if kind == "f32" else small.astype(np.uint16)).view(np.uint8)
    return out


def _blocks(name: str, form: str, count: int) -> NDArray[np.uint8]:
    row = format_named(form)
    num_blocks = count // row.block_size
    blocks: NDArray[np.uint8] = (
        (words(name, num_blocks * row.block_bytes) >> np.uint32(24)).astype(np.uint8).reshape(num_blocks, -1)
    )
    for offset in HALF_FIELDS[form]:
        half = blocks[:, offset : offset + 2].copy().view(np.uint16)
        small = (half & np.uint16(0x83FF)) | np.uint16(0x2400)  # any sign, 2^-6 <= |scale| < 2^-5
        blocks[:, offset : offset + 2] = small.view(np.uint8)
    return blocks


def one_layer(dtype: KVDtype, kv_heads: int, head_dim: int, window: int = 0) -> KVSpec:
    kind = GroupKind.SLIDING if window else GroupKind.FULL
    return KVSpec((KVGroup(kind, (0,), window),), kv_heads, head_dim, dtype)


def batch(seqs: Sequence[tuple[int, int]], logits_rows: Sequence[int] = (), block_tokens: int = 32) -> Batch:
    """A step of sequences (tokens stored before, tokens now); sequence after sequence owns pages from 1 on."""
    past = np.array([p for p, _ in seqs], np.int32)
    new = np.array([n for _, n in seqs], np.int32)
    owner = np.repeat(np.arange(len(seqs), dtype=np.int32), new)
    start = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
    total = int(new.sum())
    blocks = -(-(past + new) // block_tokens)
    table = np.zeros((len(seqs), int(blocks.max(initial=1))), np.int32)
    page = 1
    for s, count in enumerate(blocks):
        table[s, :count] = np.arange(page, page + count)
        page += int(count)
    return Batch(
        token_ids=(np.arange(total, dtype=np.int32) * 3 % 7).astype(np.int32),
        positions=np.ascontiguousarray((np.arange(total, dtype=np.int32) - start[owner] + past[owner])[None]),
        query_start=start,
        kv_len=(past + new).astype(np.int32),
        token_seq=owner,
        block_tables=[table],
        logits_rows=np.asarray(logits_rows, np.int32),
        token_types=(np.arange(total, dtype=np.int32) % 2).astype(np.int32),
    )
