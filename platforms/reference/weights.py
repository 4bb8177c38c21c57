"""Weights on the reference: float formats widened exactly, block formats kept as their exact stored fields.

Invariants: nothing is rounded when loading; stacked parts share one format; shapes are [out, in].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.reference.f32 import F32, add
from octavo.platforms.types import RawTensor
from octavo.quant.load import codes, unpack
from octavo.quant.parts import QuantizedParts

FLOAT_FORMATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, eq=False)
class ReferenceLinear:
    """[num_out, num_in]: `values` for float formats, `parts` for block formats."""

    format: str
    num_out: int
    num_in: int
    values: F32 | None = None
    parts: QuantizedParts | None = None
    bias: F32 | None = None


@dataclass(frozen=True, eq=False)
class ReferenceEmbedding:
    """[num_rows, width], kept as stored; rows are decoded on look-up."""

    raw: RawTensor
    num_rows: int
    width: int

    def rows(self, ids: np.ndarray) -> F32:
        """float32 [len(ids), width]."""
        stored = self.raw.data.reshape(self.num_rows, -1)[ids]
        return unpack(self.raw.format, stored.reshape(-1), (len(ids), self.width))


class ReferenceWeights:
    """Implements `octavo.platforms.ops.Weights`."""

    def save(self) -> None:
        """Nothing to keep: weights are not packed."""

    def linear(
        self, parts: list[RawTensor], bias: RawTensor | list[RawTensor] | None = None, *, transpose: bool = False
    ) -> ReferenceLinear:
        formats = {part.format for part in parts}
        if len(formats) != 1:
            raise PlatformError(
                f"{parts[0].name}: stacked tensors share one format; found {', '.join(sorted(formats))}: load them apart"
            )
        form = formats.pop()
        if form in FLOAT_FORMATS:
            arrays = [unpack(form, part.data.reshape(-1), part.shape) for part in parts]
            values = np.concatenate([array.T if transpose else array for array in arrays])
            num_out, num_in = values.shape
            return ReferenceLinear(
                form, num_out, num_in, np.ascontiguousarray(values), bias=self._bias(bias, num_out, parts[0].name)
            )
        if transpose:
            raise PlatformError(f"{parts[0].name}: format {form} cannot be transposed; only float formats can")
        try:
            joined = _join([codes(form, part.data.reshape(-1), part.shape) for part in parts])
        except ModelError as error:
            raise PlatformError(f"{parts[0].name}: {error}") from error
        num_out, num_in = joined.codes.shape
        return ReferenceLinear(form, num_out, num_in, parts=joined, bias=self._bias(bias, num_out, parts[0].name))

    def _bias(self, bias: RawTensor | list[RawTensor] | None, num_out: int, name: str) -> F32 | None:
        if bias is None:
            return None
        tensors = bias if isinstance(bias, list) else [bias]
        values = np.concatenate([self.vector(tensor) for tensor in tensors])
        if values.shape != (num_out,):
            raise PlatformError(f"{name}: a bias of {num_out} values is needed; {tensors[0].name} has {values.size}")
        return values

    def embedding(self, table: RawTensor) -> ReferenceEmbedding:
        return ReferenceEmbedding(table, *table.shape)

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> F32:
        values = unpack(tensor.format, tensor.data.reshape(-1), tensor.shape).reshape(-1)
        return _shifted(values, add) if add else np.array(values)


def _shifted(values: F32, by: float) -> F32:
    return add(values, np.float32(by))


def _join(parts: list[QuantizedParts]) -> QuantizedParts:
    """Stacked along the outputs."""
    if len(parts) == 1:
        return parts[0]
    stacked: dict[str, Any] = {}
    for name in ("codes", "d", "m", "dmin", "sub_scales", "sub_mins"):
        if getattr(parts[0], name) is not None:
            stacked[name] = np.concatenate([getattr(part, name) for part in parts])
    return replace(parts[0], **stacked)
