"""Cuts, reorders and widens stored tensors without leaving their format: whole rows only, so quantized blocks stay
whole.

A `RawTensor` is [rows, ...] in numpy order with rows of equal byte length; scales and zero points kept apart go along.
Invariants: values are never rounded; the source bytes are never written. `rows_of` gives a view, the others copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError
from octavo.platforms import stored
from octavo.platforms.types import RawTensor


class _Later(RawTensor):
    """A tensor whose bytes are made when they are asked for: never, if the weight is packed on disk already."""

    def __init__(
        self,
        name: str,
        like: RawTensor,
        make: Callable[[], NDArray[np.uint8]],
        scales: RawTensor | None,
        zeros: RawTensor | None,
    ) -> None:
        vars(self).update(name=name, format=like.format, shape=like.shape, scales=scales, zeros=zeros, _make=make)

    @cached_property
    def data(self) -> NDArray[np.uint8]:
        made: NDArray[np.uint8] = vars(self)["_make"]()
        return made


def rows_of(raw: RawTensor, start: int, stop: int, part: str) -> RawTensor:
    """Rows start .. stop as a view, named `raw.name[part]`."""
    return replace(stored.rows_of(raw, start, stop), name=f"{raw.name}[{part}]")


def columns_of(raw: RawTensor, start: int, stop: int, part: str) -> RawTensor:
    """Columns start .. stop of a plain (not quantized) 2-D tensor, copied."""
    num_rows, num_columns = raw.shape
    size = raw.data.size // (num_rows * num_columns)
    table = raw.data.reshape(num_rows, num_columns, size)[:, start:stop]
    return RawTensor(
        f"{raw.name}[{part}]", raw.format, (num_rows, stop - start), np.ascontiguousarray(table).reshape(-1)
    )


def unpair_rows(raw: RawTensor, heads: int, rotary_dim: int) -> RawTensor:
    """Rows per head from (2i, 2i + 1) rotating together to (i, i + rotary_dim / 2): llama.cpp's permutation undone."""
    head_dim = raw.shape[0] // heads
    order = np.arange(head_dim)
    order[:rotary_dim] = np.arange(rotary_dim).reshape(-1, 2).T.reshape(-1)
    rows = (np.arange(heads)[:, None] * head_dim + order).reshape(-1)
    return _reordered(raw, rows, f"{raw.name}[unpaired]")


def _reordered(raw: RawTensor, rows: NDArray[np.int64], name: str) -> RawTensor:
    scales, zeros = (None if part is None else _reordered(part, rows, part.name) for part in (raw.scales, raw.zeros))
    return _Later(name, raw, lambda: _rows(raw)[rows].reshape(-1), scales, zeros)


def joined(parts: Sequence[RawTensor]) -> RawTensor:
    """Vectors (biases) of one format, end to end."""
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        if part.format not in stored.FLOAT_FORMATS:
            raise ModelError(f"{part.name}: vectors are {', '.join(stored.FLOAT_FORMATS)}, found {part.format}")
    if len({part.format for part in parts}) > 1:
        parts = [expanded(part) for part in parts]
    length = sum(part.shape[0] for part in parts)
    name = "+".join(part.name for part in parts)
    return RawTensor(name, parts[0].format, (length,), np.concatenate([part.data.reshape(-1) for part in parts]))


def expanded(raw: RawTensor) -> RawTensor:
    """The tensor as f32, every value exactly as its format defines it."""
    if raw.format == "f32":
        return raw
    values = floats_of(raw)
    return RawTensor(raw.name, "f32", raw.shape, np.ascontiguousarray(values).view(np.uint8).reshape(-1))


def floats_of(raw: RawTensor) -> NDArray[np.float32]:
    """The values as float32, in the tensor's shape."""
    return stored.values_of(raw)


def _rows(raw: RawTensor) -> NDArray[np.uint8]:
    num_rows = raw.shape[0]
    if num_rows == 0 or raw.data.size % num_rows:
        raise ModelError(f"tensor {raw.name}: {raw.data.size} bytes do not divide into {num_rows} rows")
    return raw.data.reshape(num_rows, -1)
