"""Weights on a device: float formats in their own type, integer formats as packed codes and scales, near the file's size.

Integer fields (G = blocks of a row, or groups where scales are apart; N = outputs; B = inputs of a block; S = sub-blocks):

    codes [G, N, B]      d, m, dmin, zeros [G, N]      sub_scales, sub_mins [G, N, S]

so that a batched product runs over the blocks. Scales keep the type they are stored in. The last group of a row may be short
in the file; here it is filled up with code 0, which meets inputs of 0. Rows are taken over in runs, so that the host never
holds a whole tensor's codes; infinities and NaN are refused by the tensor's name, as everywhere (`platforms.stored`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.gpu.torch_base.packed import Packed, pack
from octavo.platforms.gpu.torch_base.runtime import Device, Tensor, to_device, torch
from octavo.platforms.reference.weights import ReferenceEmbedding, ReferenceWeights
from octavo.platforms.stored import FLOAT_FORMATS, damage, parts_of, quantized, refuse_gpu_only, rows_of
from octavo.platforms.types import RawTensor
from octavo.quant.formats import Format
from octavo.quant.parts import QuantizedParts

_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_WORDS = {"f32": "<f4", "f16": "<f2", "bf16": "<i2"}
_RUN_ELEMENTS = 1 << 24


@dataclass(frozen=True, eq=False)
class Integers:
    """The fields of an integer weight; see the module docstring for their shapes."""

    format: Format
    codes: Packed
    d: Tensor
    m: Tensor | None = None
    dmin: Tensor | None = None
    sub_scales: Packed | None = None
    sub_mins: Packed | None = None
    zeros: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        packed = sum(part.num_bytes for part in (self.codes, self.sub_scales, self.sub_mins) if part is not None)
        plain = (part for part in (self.d, self.m, self.dmin, self.zeros) if part is not None)
        return packed + sum(int(part.numel()) * int(part.element_size()) for part in plain)


@dataclass(frozen=True, eq=False)
class TorchLinear:
    """[num_out, num_in]: `values` for float formats, one `Integers` per run of outputs for integer ones."""

    format: str
    num_out: int
    num_in: int
    values: Tensor | None = None
    integers: tuple[Integers, ...] = ()
    bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class TorchEmbedding:
    """[num_rows, width]: float tables on the device, others where they are stored, rows decoded by `quant` on look-up."""

    num_rows: int
    width: int
    format: str
    table: Tensor | None
    stored: ReferenceEmbedding


class TorchWeights:
    """Implements `octavo.platforms.ops.Weights`. `is_dry`: only sizes are wanted, nothing reaches the device."""

    stacks_gated: ClassVar[bool] = False

    def __init__(self, device: Device, *, is_dry: bool = False) -> None:
        self.device = device
        self.is_dry = is_dry
        self._host = ReferenceWeights()

    def save(self) -> None:
        """Nothing to keep: packing is done by the device."""

    def settle(self) -> None:
        """Nothing to do."""

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> TorchLinear:
        forms = sorted({quantize or part.format for part in parts})
        name = parts[0].name
        if len(forms) != 1:
            raise PlatformError(f"{name}: stacked tensors share one format; found {', '.join(forms)}: load them apart")
        form = forms[0]
        refuse_gpu_only(name, form, "torch")
        is_turned = transpose and not quantize
        if form not in FLOAT_FORMATS and is_turned:
            raise PlatformError(f"{name}: format {form} cannot be transposed; only float formats can")
        if quantize and not self.is_dry:
            parts = [quantized(part, quantize, transpose=transpose) for part in parts]
            transpose = False
        num_in = parts[0].shape[0 if transpose else 1]
        num_out = sum(part.shape[1 if transpose else 0] for part in parts)
        if self.is_dry:
            return TorchLinear(form, num_out, num_in)
        kept = self._bias(bias, num_out, name)
        for part in parts:
            _refuse_damage(part, is_turned)
        if form in FLOAT_FORMATS:
            values = torch.cat([self._floats(part).t() if is_turned else self._floats(part) for part in parts])
            return TorchLinear(form, num_out, num_in, values.contiguous(), bias=kept)
        integers = tuple(self._integers(some) for part in parts for some in _runs(part))
        return TorchLinear(form, num_out, num_in, integers=_merged(integers), bias=kept)

    def embedding(self, table: RawTensor) -> TorchEmbedding:
        _refuse_damage(table, False)
        values = self._floats(table) if table.format in FLOAT_FORMATS and not self.is_dry else None
        stored = ReferenceEmbedding(table, *table.shape)
        return TorchEmbedding(table.shape[0], table.shape[1], table.format, values, stored)

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> Tensor:
        return to_device(self._host.vector(tensor, add=add), self.device)

    def _bias(self, bias: RawTensor | list[RawTensor] | None, num_out: int, name: str) -> Tensor | None:
        if bias is None:
            return None
        tensors = bias if isinstance(bias, list) else [bias]
        values = torch.cat([self.vector(tensor) for tensor in tensors])
        if values.numel() != num_out:
            raise PlatformError(f"{name}: a bias of {num_out} values is needed; {tensors[0].name} has {values.numel()}")
        return values

    def _floats(self, raw: RawTensor) -> Tensor:
        words = np.ascontiguousarray(raw.data).reshape(-1).view(_WORDS[raw.format]).reshape(raw.shape)
        stored = torch.empty(raw.shape, dtype=_TYPES[raw.format], device=self.device)
        target = stored.view(torch.int16) if raw.format == "bf16" else stored
        target.copy_(to_device(words, "cpu"))
        return stored

    def _integers(self, raw: RawTensor) -> Integers:
        try:
            parts = parts_of(raw)
        except ModelError as error:
            raise PlatformError(str(error)) from error
        return self._placed(parts, "f16" if raw.scales is None else raw.scales.format)

    def _placed(self, parts: QuantizedParts, scale_type: str) -> Integers:
        form = parts.format
        num_out, num_in = parts.codes.shape
        block = num_in if form.has_scales_apart and not form.group else max(form.group, form.block_size)
        codes = self._blocks(parts.codes, block)
        offset = 1 << (form.bits - 1) if parts.codes.dtype == np.int8 and form.bits < 8 else 0
        bits, shift = _SUB_SCALES.get(form.name, (8, 0))

        def subs(field: NDArray[np.generic] | None, shift: int) -> Packed | None:
            return None if field is None else pack(self._blocks(field, block // form.group), bits, shift)

        def scales(values: NDArray[np.float32] | None) -> Tensor | None:
            if values is None:
                return None
            return to_device(values.T.reshape(-1, num_out), self.device).to(_TYPES[scale_type])

        zeros = None if parts.zeros is None else to_device(parts.zeros.astype(np.int8).T, self.device)
        d, m, dmin = scales(parts.d), scales(parts.m), scales(parts.dmin)
        sub_scales, sub_mins = subs(parts.sub_scales, shift), subs(parts.sub_mins, 0)
        return Integers(form, pack(codes, form.bits, offset), d, m, dmin, sub_scales, sub_mins, zeros)

    def _blocks(self, rows: NDArray[np.generic], block: int) -> Tensor:
        """[N, K] -> [K / block, N, block] on the device, filled up with zeros."""
        codes = to_device(rows, self.device)
        short = -codes.shape[1] % block
        if short:
            codes = torch.nn.functional.pad(codes, (0, short))
        return codes.unflatten(1, (-1, block)).transpose(0, 1)


#: format -> (bits, offset) of its sub-scales; sub-minima have the same bits
_SUB_SCALES = {"q2_k": (4, 0), "q3_k": (6, 32), "q4_k": (6, 0), "q5_k": (6, 0), "q6_k": (8, 0)}


def _runs(raw: RawTensor) -> Iterator[RawTensor]:
    """Runs of rows whose codes stay small on the host."""
    step = max(1, _RUN_ELEMENTS // max(raw.shape[1], 1))
    for start in range(0, raw.shape[0], step):
        yield rows_of(raw, start, min(start + step, raw.shape[0]))


def _merged(runs: tuple[Integers, ...]) -> tuple[Integers, ...]:
    """Runs joined along the outputs; those with zero points and those without stay apart."""
    alike = groupby(runs, key=lambda run: (run.zeros is None, run.d.dtype))
    return tuple(_joined(list(group)) for _, group in alike)


def _joined(runs: list[Integers]) -> Integers:
    if len(runs) == 1:
        return runs[0]

    def tensors(name: str) -> Tensor | None:
        parts = [getattr(run, name) for run in runs]
        return None if parts[0] is None else torch.cat(parts, dim=1)

    def packed(name: str) -> Any:
        parts: list[Packed | None] = [getattr(run, name) for run in runs]
        some = [part for part in parts if part is not None]
        if not some:
            return None
        widths = [bits for bits, _ in some[0].planes]
        planes = [torch.cat([part.planes[i][1] for part in some], dim=1) for i in range(len(widths))]
        return Packed(tuple(zip(widths, planes, strict=True)), some[0].offset)

    return Integers(
        runs[0].format, packed("codes"), tensors("d"), tensors("m"), tensors("dmin"), packed("sub_scales"),
        packed("sub_mins"), tensors("zeros"),
    )  # fmt: skip


def _refuse_damage(raw: RawTensor, is_turned: bool) -> None:
    if error := damage(raw, transpose=is_turned):
        raise error
