"""Weights on the reference: float formats widened exactly, block formats kept as their exact stored fields.

Invariants: nothing is rounded when loading, unless quantizing was asked for; stacked parts share one format; shapes are
[out, in]; infinities and NaN are refused by the tensor's name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.reference.f32 import F32, add
from octavo.platforms.stored import FLOAT_FORMATS, damage, parts_of, quantized, values_of
from octavo.platforms.types import RawTensor
from octavo.quant.load import unpack
from octavo.quant.parts import QuantizedParts


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

    stacks_gated: ClassVar[bool] = False

    def save(self) -> None:
        """Nothing to keep: weights are not packed."""

    def settle(self) -> None:
        """Nothing to do."""

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> ReferenceLinear:
        if quantize:
            parts, transpose = [quantized(part, quantize, transpose=transpose) for part in parts], False
        formats = {part.format for part in parts}
        if len(formats) != 1:
            raise PlatformError(
                f"{parts[0].name}: stacked tensors share one format; found {', '.join(sorted(formats))}: load them apart"
            )
        form = formats.pop()
        if form in FLOAT_FORMATS:
            _refuse_damage(parts, transpose)
            arrays = [values_of(part) for part in parts]
            values = np.concatenate([array.T if transpose else array for array in arrays])
            num_out, num_in = values.shape
            return ReferenceLinear(
                form, num_out, num_in, np.ascontiguousarray(values), bias=self._bias(bias, num_out, parts[0].name)
            )
        if transpose:
            raise PlatformError(f"{parts[0].name}: format {form} cannot be transposed; only float formats can")
        try:
            joined = _join([parts_of(part) for part in parts])
        except ModelError as error:
            raise PlatformError(str(error)) from error
        _refuse_damage(parts, False)
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
        _refuse_damage([table], False)
        return ReferenceEmbedding(table, *table.shape)

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> F32:
        values = values_of(tensor).reshape(-1)
        _refuse_damage([tensor], False)
        return _shifted(values, add) if add else np.array(values)


def _refuse_damage(tensors: list[RawTensor], is_transposed: bool) -> None:
    for tensor in tensors:
        if error := damage(tensor, transpose=is_transposed):
            raise error


def _shifted(values: F32, by: float) -> F32:
    return add(values, np.float32(by))


def _join(parts: list[QuantizedParts]) -> QuantizedParts:
    """Stacked along the outputs."""
    if len(parts) == 1:
        return parts[0]
    stacked: dict[str, Any] = {}
    if len({part.zeros is None for part in parts}) > 1:  # none stands for the format's own zero point
        parts = [part if part.zeros is not None else replace(part, zeros=_zeros(part)) for part in parts]
    for name in ("codes", "d", "m", "dmin", "sub_scales", "sub_mins", "zeros"):
        if getattr(parts[0], name) is not None:
            stacked[name] = np.concatenate([getattr(part, name) for part in parts])
    return replace(parts[0], **stacked)


def _zeros(part: QuantizedParts) -> np.ndarray:
    return np.full(part.d.shape, part.format.zero_point, np.uint8)
