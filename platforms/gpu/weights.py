"""Weights on a GPU: checkpoint tensors go over as they are and are packed there (csrc_common/gpu/packed.h).

A tensor crosses the bus once, in its checkpoint's own bytes; a kernel writes the panels and notes values that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.gpu.module import Arena, flat_bytes
from octavo.platforms.gpu.native import GpuNative, OnDevice
from octavo.platforms.recorded.tensors import stack_bias, stack_sizes, vector
from octavo.platforms.stored import damage, quantized_rows, scale_format
from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named

HAS_MIN, ZERO8 = 1, 2
SCALE_FLAGS = {"f32": 0, "bf16": 8, "f16": 16}
GROUP_FLAGS = {32: 0, 64: 32, 128: 64}
PANEL, DENSE_RECORD, CODES_RECORD = 16, 32, 128
_FIXED = 3


@dataclass(frozen=True)
class GpuFormat:
    """How a checkpoint format runs: kind, flags, input form, bits of a packed code; inputs (0: the row) and bytes of a scale."""

    kind: str
    flags: int
    prepare: str
    bits: int
    group: int = 0
    scale_bytes: int = 0

    def num_bytes(self, num_out: int, num_in: int) -> int:
        """Of a whole weight, as `Layout` of gpu/packed.h places it."""
        panels = -(-num_out // PANEL)
        if not self.scale_bytes:
            return panels * PANEL * -(-num_in // DENSE_RECORD) * DENSE_RECORD * self.bits // 8
        codes = panels * PANEL * -(-num_in // CODES_RECORD) * CODES_RECORD * self.bits // 8
        return codes + panels * PANEL * -(-num_in // (self.group or num_in)) * self.scale_bytes


#: kind -> the form of inputs that its kernels of fast levels take, where that is another one (docs/gpu.md, "Inputs")
FAST_PREPARE = {"f16": "prepare_f16pair", "i4": "prepare_f16row"}
_G32, _G256 = "prepare_i8g32", "prepare_i8g256"
FORMATS: dict[str, GpuFormat] = {
    "f32": GpuFormat("f32", 0, "", 32),
    "f16": GpuFormat("f16", 0, "", 16),
    "bf16": GpuFormat("bf16", 0, "prepare_bf16", 16),
    "q4_0": GpuFormat("q4g32", ZERO8, _G32, 4, 32, 2),
    "q4_1": GpuFormat("q4g32", HAS_MIN, _G32, 4, 32, 4),
    "q5_0": GpuFormat("q5g32", 0, _G32, 8, 32, 2),
    "q5_1": GpuFormat("q5g32", HAS_MIN, _G32, 8, 32, 4),
    "q8_0": GpuFormat("q8g32", 0, _G32, 8, 32, 2),
    "q2_k": GpuFormat("q2k", HAS_MIN, _G256, 4, 256, 36),
    "q3_k": GpuFormat("q3k", 0, _G256, 8, 256, 36),
    "q4_k": GpuFormat("q4k", HAS_MIN, _G256, 4, 256, 36),
    "q5_k": GpuFormat("q5k", HAS_MIN, _G256, 8, 256, 36),
    "q6_k": GpuFormat("q6k", 0, _G256, 8, 256, 36),
    "mxfp4": GpuFormat("mxfp4", 0, "prepare_f8g32", 4, 32, 1),
}
APART = ("w8a8", "i4g32", "i4g64", "i4g128", "f8row", "f8g128", "mxfp8")


def format_of(form: str, scales: str) -> GpuFormat:
    """The packed form of a tensor's format; KeyError for one that no kernel runs."""
    if form not in APART:
        return FORMATS[form]
    if form == "mxfp8":
        if scales != "f8_e8m0":
            raise KeyError(scales)
        return GpuFormat(form, 0, "prepare_f8g32", 8, 32, 1)
    flags, group = SCALE_FLAGS[scales], format_named(form).group
    if format_named(form).code == "e4m3":
        return GpuFormat(form, flags, f"prepare_{form}", 8, group, 4)
    if not group:
        return GpuFormat("w8a8", flags, "prepare_i8row", 8, 0, 4)
    return GpuFormat("i4", flags | GROUP_FLAGS[group], f"prepare_i8g{group}", 4, group, 5)


@dataclass(frozen=True)
class GpuLinear:
    """A packed linear weight at `address`."""

    format: str
    num_out: int
    num_in: int
    packed: GpuFormat
    address: int
    held: Any
    bias_address: int = 0
    bias: Any = None


@dataclass(frozen=True)
class GpuTable:
    """A table in device memory, its rows as the checkpoint stores them."""

    format: str
    num_rows: int
    width: int
    row_bytes: int
    data: OnDevice


@dataclass
class GpuWeights:
    """Implements `octavo.platforms.ops.Weights`. `prove` tests the kernels of a format before its first weight is packed."""

    stacks_gated: ClassVar[bool] = True
    native: GpuNative
    prove: Callable[[str], None] | None = None
    is_dry: bool = False  # sizes only
    packed_bytes: int = 0
    formats: set[str] = field(default_factory=set)
    _finite: set[str] = field(default_factory=set)  # names of tensors that packing has searched

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> GpuLinear:
        name = quantize or parts[0].format
        form = self._format(parts[0], quantize)
        if self.prove is not None and name not in self.formats:
            self.prove(name)
        outs, num_in = stack_sizes(parts, name, transpose=transpose)
        num_out = sum(outs)
        num_bytes = form.num_bytes(num_out, num_in)
        self.packed_bytes += num_bytes
        self.formats.add(name)
        held = None if self.is_dry else self.native.arena(num_bytes, "weights")
        first_row = 0
        for part, outputs in zip(parts, outs, strict=True):
            if held is not None:
                for rows, piece in quantized_rows(part, quantize, transpose=transpose):
                    is_turned = transpose and piece is part
                    self._pack(piece, form, first_row + rows, num_out, held.address, transpose=is_turned)
                self._finite.add(part.name)
            first_row += outputs
        values = stack_bias(bias, num_out)
        address, holder = (0, None) if values is None or self.is_dry else self.native.hold(values)
        return GpuLinear(name, num_out, num_in, form, 0 if held is None else held.address, held, address, holder)

    def embedding(self, table: RawTensor) -> GpuTable:
        if f"embedding_{table.format}" not in self.native.table:
            raise PlatformError(f"{table.name}: no embedding kernel for format {table.format}")
        rows, width = table.shape
        if not self.is_dry and table.name not in self._finite and (error := damage(table)):
            raise error
        data = OnDevice(0, 0, None) if self.is_dry else self._on_device(table)
        return GpuTable(table.format, rows, width, table.data.nbytes // rows, data)

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> NDArray[np.float32]:
        return vector(tensor, add)

    def save(self) -> None:
        """Nothing is kept on disk: packing is as fast as reading."""

    def settle(self) -> None:
        """Nothing is left to do."""

    def _on_device(self, table: RawTensor) -> OnDevice:
        address, held = self.native.hold(table.data)
        return OnDevice(address, table.data.nbytes, held)

    def _pack(
        self, part: RawTensor, form: GpuFormat, first_row: int, total: int, address: int, *, transpose: bool
    ) -> None:
        """Packs a tensor as outputs `first_row` and on of the weight at `address`; ModelError if it holds what is not finite."""
        module = self.native.module
        num_in, outputs = part.shape if transpose else part.shape[::-1]
        bands = self.native.table["pack_i4" if part.format.startswith("i4g") else f"pack_{part.format}"].bands
        bad = Arena(module.device, 4)
        sent = [self.native.hold(flat_bytes(part.data))]
        sent += [
            (0, None) if side is None else self.native.hold(flat_bytes(side.data)) for side in (part.scales, part.zeros)
        ]
        program = module.Program()
        fields = {
            "source": sent[0][0], "row_bytes": part.data.nbytes // part.shape[0], "n": outputs, "k": num_in,
            "packed": address, "first_row": first_row, "total_n": total, "transposed": int(transpose),
            "flags": form.flags, "scales": sent[1][0], "zeros": sent[2][0],
            "groups": 0 if part.scales is None else part.scales.shape[-1], "bad": bad.address,
        }  # fmt: skip
        program.add(bands, (_FIXED, outputs), fields)
        program.run(None, module.Step(0, 0, 0, None, None, None, None, None, None, None, 0, []), 0, 1)
        if self.native.fetch(bad, 0, 4).view(np.int32)[0]:
            raise damage(part, transpose=transpose) or ModelError(
                f"{part.name}: weights must be finite, and some are not"
            )

    def _format(self, tensor: RawTensor, quantize: str) -> GpuFormat:
        form, scales, _ = tensor.layout
        if quantize:
            form, scales = quantize, scale_format(quantize)
        try:
            return format_of(form, scales)
        except KeyError:
            raise PlatformError(
                f"{tensor.name}: no {self.native.platform} kernel runs format {form}; it runs {', '.join((*FORMATS, *APART))}"
            ) from None
