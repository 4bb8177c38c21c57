"""What the case tables share: seeded arrays, stored tensors, step batches, and the shape of a table.

A table (`tests/cases/<op>.py`) holds `CASES`, frozen rows of plain data with a unique `name` and a `tolerance`, and
three functions: `run(cell, case)` gives the op's float32 result on a cell, `naive(case)` the same in float64 by the
textbook formula, `inputs(case)` what both start from. Benchmarks import the same tables for their shapes.

`tolerance` bounds |run - naive| as a share of the largest |naive| (or of 1): it covers float32 rounding and, where the
contract rounds weights to bfloat16, that. CPU cells are held to the reference's bits instead.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms import stored as stored_values
from octavo.platforms.stored import quantized
from octavo.platforms.types import Batch, GroupKind, KVGroup, KVSpec, RawTensor
from octavo.quant.formats import format_named
from octavo.quant.load import pack

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

ROWS = (1, 2, 7, 16, 33)
FLOAT32_TOLERANCE = 1e-6
FLOAT_FORMATS = ("f32", "f16", "bf16")
GROUP_FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
K_FORMATS = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
#: formats with scales apart, with what `stored` takes for them: z (zero points), the type of the scales if not the usual one
APART_FORMATS = (
    *("w8a8", "w8a8+bf16", "w8a8+f16", "i4g32", "i4g32+z", "i4g32+f32", "i4g64", "i4g64+z+f16", "i4g128"),
    *("i4g128+z", "i4g128+z+f32"),
)


def generator(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=zlib.crc32(name.encode())))


def normal(name: str, *shape: int, scale: float = 1.0) -> F32:
    """Nearly normal float32 values that depend on `name` and shape only: sums of eight uniforms from raw Philox words.

    Numpy may change its distributions between releases, not its generators' words; golden digests rest on that.
    """
    size = int(np.prod(shape))
    words = generator(name).bit_generator.random_raw(size * 4).astype(np.uint64).reshape(size, 4)
    halves = np.concatenate([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=1).astype(np.int64)
    centred = (halves.sum(axis=1) - 4 * (2**32 - 1)).astype(np.float64) * (1.2247448713915890 / 2**32)
    return (centred.reshape(shape) * scale).astype(np.float32)


def stored(name: str, values: F32, form: str = "f32") -> RawTensor:
    """A checkpoint tensor holding `values` in `form`; one of APART_FORMATS may ask for more behind its name."""
    base, *more = form.split("+")
    if not format_named(base).has_scales_apart:
        return RawTensor(name, form, values.shape, np.ascontiguousarray(pack(form, values)).reshape(-1).view(np.uint8))
    raw = quantized(RawTensor(name, "f32", values.shape, np.ascontiguousarray(values).view(np.uint8).reshape(-1)), base)
    scales = stored_values.values_of(raw.scales)  # type: ignore[arg-type]
    zeros = None
    if "z" in more:  # any codes do; these lie around the middle
        drawn = 8 + np.rint(normal(name + "zeros", *scales.shape, scale=3)).clip(-8, 7)
        zeros = RawTensor("zeros", "u8", scales.shape, drawn.astype(np.uint8).reshape(-1))
    kind = next((kind for kind in FLOAT_FORMATS if kind in more), raw.scales.format)  # type: ignore[union-attr]
    if kind == raw.scales.format:  # type: ignore[union-attr]
        return replace(raw, zeros=zeros)
    return replace(raw, scales=stored("scales", scales, kind), zeros=zeros)


def values_of(raw: RawTensor) -> F64:
    return stored_values.values_of(raw).astype(np.float64)


def batch_of(
    seqs: Sequence[tuple[int, int]],
    spec: KVSpec | None = None,
    *,
    logits_rows: Sequence[int] | None = None,
    token_ids: NDArray[np.int32] | None = None,
) -> Batch:
    """A step of sequences (tokens already stored, tokens of this step). Pages are dealt out backwards from the last."""
    new = np.array([n for _, n in seqs], np.int32)
    past = np.array([p for p, _ in seqs], np.int32)
    total = int(new.sum())
    owner = np.repeat(np.arange(len(seqs), dtype=np.int32), new)
    start = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
    positions = np.arange(total, dtype=np.int32) - start[owner] + past[owner]
    return Batch(
        token_ids=np.zeros(total, np.int32) if token_ids is None else token_ids,
        positions=np.ascontiguousarray(positions[None]),
        query_start=start,
        kv_len=(past + new).astype(np.int32),
        token_seq=owner,
        block_tables=[] if spec is None else block_tables(spec, past, past + new),
        logits_rows=np.asarray(range(total) if logits_rows is None else logits_rows, np.int32),
        token_types=(np.arange(total, dtype=np.int32) % 2).astype(np.int32),
    )


def block_tables(spec: KVSpec, past: NDArray[np.int32], lengths: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Per group [S, blocks]: pages in falling order; what lies before the first query's window is the null page."""
    blocks = max(-(-int(lengths.max(initial=0)) // spec.block_tokens), 1)
    tables = []
    page = num_pages(spec, lengths) - 1
    for group in spec.groups:
        table = np.zeros((len(lengths), blocks), np.int32)
        for s, length in enumerate(lengths):
            first = max(int(past[s]) - group.window + 1, 0) // spec.block_tokens if group.window else 0
            for b in range(first, -(-int(length) // spec.block_tokens)):
                table[s, b] = page
                page -= 1
        tables.append(table)
    return tables


def num_pages(spec: KVSpec, lengths: NDArray[np.int32]) -> int:
    return 1 + len(spec.groups) * int(sum(-(-int(n) // spec.block_tokens) for n in lengths))


def one_layer(dtype: str, kv_heads: int, head_dim: int, window: int = 0, block_tokens: int = 32) -> KVSpec:
    kind = GroupKind.SLIDING if window else GroupKind.FULL
    return KVSpec((KVGroup(kind, (0,), window),), kv_heads, head_dim, dtype, block_tokens)  # type: ignore[arg-type]


def bf16(x: NDArray[Any]) -> F64:
    """Rounded to 8 significant bits, half to even, by float64 arithmetic (normal range)."""
    wide = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(wide)
    return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)


def f16_rows(x: NDArray[Any]) -> F64:
    """Rows as prepare_f16row rounds them: to float16 of the row divided by a power of two, which gives its peak 15 bits."""
    wide = np.asarray(x, np.float64)
    peak = np.abs(wide).max(axis=-1, keepdims=True, initial=0)
    scale = np.exp2(np.floor(np.log2(np.where(peak > 0, peak, 1))) - 14)
    return (wide / scale).astype(np.float16).astype(np.float64) * scale


def e4m3_rows(x: NDArray[Any]) -> tuple[F64, F64]:
    """(numbers E4M3, scale) along the last axis: scale = amax / 448 in float32, the nearest number of a table, ties to even."""
    wide = np.asarray(x, np.float64)
    scale = (np.abs(wide).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(448)).astype(np.float64)
    safe = np.where(scale == 0, 1, scale)
    ratio = (wide.astype(np.float32) / safe.astype(np.float32)).astype(np.float64)
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(ratio), 2.0**-20))), -6) - 3)
    return np.where(scale == 0, 0, np.rint(ratio / step) * step), scale


def int8_rows(x: NDArray[Any]) -> tuple[F64, F64]:
    """(codes, scale) along the last axis: scale = amax / 127 in float32, codes half to even."""
    wide = np.asarray(x, np.float64)
    scale = (np.abs(wide).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(127)).astype(np.float64)
    safe = np.where(scale == 0, 1, scale)
    ratio = (wide.astype(np.float32) / safe.astype(np.float32)).astype(np.float64)
    return np.where(scale == 0, 0, np.rint(ratio)), scale
