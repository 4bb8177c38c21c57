"""Checkpoint tensors read as `quant` reads them, cut by rows, quantized, and searched for damage; the same for every platform.

Arrays are numpy; nothing here is fast. Invariant: a result depends on the stored bytes only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.types import F32, RawTensor
from octavo.quant import load
from octavo.quant.formats import format_named
from octavo.quant.mx import e8m0_codes
from octavo.quant.parts import QuantizedParts

FLOAT_FORMATS = ("f32", "f16", "bf16")
_CHUNK_ELEMENTS = 1 << 20
_RUN_WORDS = 1 << 16
_INFINITIES = {"f32": ("<u4", 0x7F800000), "f16": ("<u2", 0x7C00), "bf16": ("<u2", 0x7F80)}


def values_of(raw: RawTensor) -> F32:
    """float32 of the tensor's shape, every value exactly as its format defines it."""
    return load.unpack(raw.format, raw.data.reshape(-1), raw.shape, *_apart(raw))


def parts_of(raw: RawTensor) -> QuantizedParts:
    """The exact stored fields of a quantized tensor; ModelError names it if it is none."""
    try:
        return load.codes(raw.format, raw.data.reshape(-1), raw.shape, *_apart(raw))
    except ModelError as error:
        raise ModelError(f"{raw.name}: {error}") from error


def _apart(raw: RawTensor) -> tuple[F32 | None, NDArray[np.uint8] | None]:
    scales = None if raw.scales is None else values_of(raw.scales)
    zeros = None if raw.zeros is None else load.as_array("u8", raw.zeros.data.reshape(-1), raw.zeros.shape)
    return scales, zeros


def rows_of(raw: RawTensor, start: int, stop: int) -> RawTensor:
    """Rows start .. stop as a view, scales and zero points with them; the name stays."""
    row_bytes = raw.data.nbytes // max(raw.shape[0], 1)
    data = raw.data.reshape(-1)[start * row_bytes : stop * row_bytes]
    scales, zeros = (None if part is None else rows_of(part, start, stop) for part in (raw.scales, raw.zeros))
    return RawTensor(raw.name, raw.format, (stop - start, *raw.shape[1:]), data, scales, zeros)


def quantized(raw: RawTensor, form: str, *, transpose: bool = False) -> RawTensor:
    """A float tensor [out, in] (or [in, out] with `transpose`) rounded to nearest in `form`; one that is in it stays as it is.

    ModelError for a tensor that is quantized otherwise, that the format cannot hold, or that holds infinities or NaN.
    """
    if raw.format == form:
        return raw
    if raw.format not in FLOAT_FORMATS:
        raise ModelError(
            f"{raw.name}: quantizing to {form} was asked for, and the tensor is stored as {raw.format}; only "
            f"{', '.join(FLOAT_FORMATS)} tensors are quantized: load it as it is, or take a checkpoint of floats"
        )
    values = values_of(raw)
    values = np.ascontiguousarray(values.T) if transpose else values
    try:
        stored = load.quantize(form, values)
    except ModelError as error:
        raise damage(raw, transpose=transpose) or ModelError(f"{raw.name}: {error}") from None
    made = RawTensor(raw.name, form, values.shape, stored.codes.reshape(-1))
    if stored.scales is None:
        return made
    return replace(made, scales=_scales(raw.name, form, stored.scales))


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Kept, for a model has many tensors, and a thread takes a millisecond to start where processors are busy."""
    return ThreadPoolExecutor(num_threads, "octavo-quantize")


os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads stay behind


def quantized_rows(
    raw: RawTensor, form: str, *, transpose: bool = False, elements: int = 1 << 18, num_threads: int = 1
) -> Iterator[tuple[int, RawTensor]]:
    """(first output, outputs from there on in `form`) in runs of some `elements`, so that memory stays bounded and what is made
    on the way stays in the caches; `num_threads` runs at a time. '' gives `raw`.

    `transpose`: `raw` is [in, out]; what is yielded is [out, in], unless `raw` itself is.
    """
    if form in ("", raw.format):
        yield 0, raw
        return
    num_in, num_out = raw.shape if transpose else raw.shape[::-1]
    step = max(16, elements // max(num_in, 1) // 16 * 16)

    def run(start: int) -> RawTensor:
        stop = min(start + step, num_out)
        some = _columns(raw, start, stop) if transpose else rows_of(raw, start, stop)
        return quantized(some, form, transpose=transpose)

    starts = range(0, num_out, step)
    if num_threads == 1 or len(starts) == 1:
        yield from ((start, run(start)) for start in starts)
        return
    pool = _pool(num_threads)  # numpy computes without the interpreter's lock
    for at in range(0, len(starts), num_threads):
        some = starts[at : at + num_threads]
        yield from zip(some, pool.map(run, some), strict=True)


def _columns(raw: RawTensor, start: int, stop: int) -> RawTensor:
    """Columns of a plain tensor, copied."""
    num_rows, num_columns = raw.shape
    table = raw.data.reshape(num_rows, num_columns, -1)[:, start:stop]
    return replace(raw, shape=(num_rows, stop - start), data=np.ascontiguousarray(table).reshape(-1))


def _scales(name: str, form: str, scales: F32) -> RawTensor:
    """Scales as `quant` makes them: float32, bfloat16 (already rounded) for groups of integers, E8M0 for powers of two."""
    kind = scale_format(form)
    packed = e8m0_codes(scales) if kind == "f8_e8m0" else load.pack(kind, scales)
    return RawTensor(f"{name} scales", kind, scales.shape, packed.reshape(-1))


def refuse_gpu_only(name: str, form: str, platform: str) -> None:
    """PlatformError for a format whose codes are small floats: kernels for integers would take them for integers."""
    if format_named(form).is_gpu_only:
        raise PlatformError(
            f"{name}: no {platform} kernel runs format {form}; GPUs do (octavo-rocm, octavo-cuda), and expand_weights widens it"
        )


def scale_format(form: str) -> str:
    """What `quantized` stores scales kept apart in."""
    row = format_named(form)
    return "f8_e8m0" if form == "mxfp8" else "bf16" if row.group and row.code == "int" else "f32"


def damage(raw: RawTensor, *, transpose: bool = False) -> ModelError | None:
    """The error for a tensor that holds an infinity or NaN (values, scales, minima), naming the first; None if all are finite."""
    if raw.format in FLOAT_FORMATS and _is_finite(raw):
        return None
    for row, values in _numbers(raw):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            at, column = (int(i) for i in bad[0])
            what = "column" if raw.format in FLOAT_FORMATS else "scale or minimum"
            place = f"{what} {column} of row {row + at}" if len(raw.shape) > 1 else f"place {column}"
            stored = "stored [in, out], " if transpose else ""
            return ModelError(
                f"{raw.name}: {stored}{place} holds {values[at, column]}, and weights must be finite: the file is damaged, "
                "or whatever wrote it overflowed; get it again or convert it anew"
            )
    return None


def _is_finite(raw: RawTensor) -> bool:
    """Whether all floats are finite: as integers without their sign they lie below infinity. Runs fit the cache."""
    kind, infinity = _INFINITIES[raw.format]
    words = np.ascontiguousarray(raw.data).reshape(-1).view(kind)
    scratch = np.empty(min(_RUN_WORDS, words.size), kind)
    magnitude = scratch.dtype.type(np.iinfo(scratch.dtype).max >> 1)
    for start in range(0, words.size, _RUN_WORDS):
        some = words[start : start + _RUN_WORDS]
        if np.bitwise_and(some, magnitude, out=scratch[: some.size]).max() >= infinity:
            return False
    return True


def _numbers(raw: RawTensor) -> Iterator[tuple[int, F32]]:
    """(first row, values or scales [rows, n]) of runs of rows; minima follow scales."""
    if len(raw.shape) < 2:
        yield 0, values_of(raw).reshape(1, -1)
        return
    step = max(1, _CHUNK_ELEMENTS // max(raw.shape[1], 1))
    for start in range(0, raw.shape[0], step):
        some = rows_of(raw, start, min(start + step, raw.shape[0]))
        if raw.format in FLOAT_FORMATS:
            yield start, values_of(some)
            continue
        parts = parts_of(some)
        for field in (parts.d, parts.m, parts.dmin):
            if field is not None:
                yield start, field
