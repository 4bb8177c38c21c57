"""Paged keys and values on the reference: one numpy array, in the canonical layout of a block.

`data` is [page, layer in group, k | v, kv head, token, dim] in the KV dtype (bfloat16 as uint16 bits, E4M3 as uint8 codes),
`scales` the same without the last axis (float32, int8 and fp8 only). Page 0 is the null page. Sizes in tokens and elements.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.reference import f32
from octavo.platforms.reference.f32 import F32
from octavo.platforms.reference.products import quantize_f8, quantize_rows
from octavo.platforms.types import I32, Batch, KVSpec
from octavo.quant.fp8 import E4M3FN

_DTYPES = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16, "int8": np.int8, "fp8": np.uint8}
K, V = 0, 1


class PagePool:
    """The pages of one model."""

    def __init__(self, spec: KVSpec, num_pages: int) -> None:
        self.spec = spec
        shape = (num_pages, spec.layers_per_group, 2, spec.num_kv_heads, spec.block_tokens, spec.head_dim)
        self.data = np.zeros(shape, _DTYPES[spec.dtype])
        self.scales: F32 | None = np.zeros(shape[:-1], np.float32) if spec.has_scales else None

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Whole pages (source, destination), in order."""
        for source, destination in pairs:
            self.data[destination] = self.data[source]
            if self.scales is not None:
                self.scales[destination] = self.scales[source]

    def append(self, k: F32, v: F32, layer: int, batch: Batch) -> None:
        """Stores [T, kv heads * head_dim] at the batch's pages, rounded to the KV dtype."""
        group, inner = self.spec.place(layer)
        at = query_positions(batch)
        page = batch.block_tables[group][batch.token_seq, at // self.spec.block_tokens]
        slot = at % self.spec.block_tokens
        for which, rows in ((K, k), (V, v)):
            heads = rows.reshape(len(at), self.spec.num_kv_heads, self.spec.head_dim)
            stored, scales = _store(heads, self.spec.dtype)
            self.data[page, inner, which, :, slot] = stored
            if self.scales is not None:
                self.scales[page, inner, which, :, slot] = scales

    def read(self, layer: int, which: int, pages: I32) -> tuple[F32, F32 | None]:
        """([kv head, len(pages) * block_tokens, dim] float32 as stored, [kv head, tokens] scales of codes)."""
        _, inner = self.spec.place(layer)
        blocks = self.data[pages, inner, which]
        heads = np.moveaxis(blocks, 0, 1).reshape(self.spec.num_kv_heads, -1, self.spec.head_dim)
        if self.spec.dtype == "fp8":
            values = E4M3FN.decode(heads)
        else:
            values = f32.from_bf16(heads) if self.spec.dtype == "bf16" else heads.astype(np.float32)
        if self.scales is None:
            return values, None
        scales = np.moveaxis(self.scales[pages, inner, which], 0, 1).reshape(self.spec.num_kv_heads, -1)
        return values, scales


def _store(heads: F32, dtype: str) -> tuple[NDArray[np.generic], F32 | None]:
    if dtype == "bf16":
        return f32.bf16_bits(heads), None
    if dtype == "f16":
        return f32.to_f16(f32.flush(heads)), None
    if dtype == "f32":
        return f32.flush(heads), None
    rows = heads.reshape(-1, heads.shape[-1])
    q: NDArray[np.generic]
    if dtype == "int8":
        q, scale = quantize_rows(rows, rows.shape[1])
    else:
        numbers, scale = quantize_f8(rows, rows.shape[1], is_mx=False)
        numbers = np.where(np.isnan(numbers), np.float32(-E4M3FN.largest), numbers)  # of a row with an infinity
        q = E4M3FN.encode(numbers + np.float32(0))  # -0 becomes 0
    return q.reshape(heads.shape), scale.reshape(heads.shape[:-1])


def query_positions(batch: Batch) -> I32:
    """[T] absolute position of every token of the step in its sequence."""
    left = batch.query_start[batch.token_seq + 1] - np.arange(batch.num_tokens, dtype=np.int32)
    return np.asarray(batch.kv_len[batch.token_seq] - left, np.int32)


def page_bytes(spec: KVSpec) -> int:
    """Bytes of one page, scales included."""
    tokens = spec.layers_per_group * 2 * spec.num_kv_heads * spec.block_tokens
    scales = 4 if spec.has_scales else 0
    return math.prod((tokens, spec.head_dim)) * np.dtype(_DTYPES[spec.dtype]).itemsize + tokens * scales
