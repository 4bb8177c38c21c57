"""Weights on a CPU: checkpoint rows packed into panels of 16 outputs (csrc_common/packed/panels.h) by the native team.

Packing never goes through Python arithmetic: one `pack_<format>` kernel per checkpoint format writes the panels straight
from the file map, and notes values that are not finite. Only quantizing on the way (`quantize`) does, by runs of rows that
take a few MiB. The packed form is one for every level and every number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.cpu.packed_cache import PackedCache
from octavo.platforms.limits import read_limits
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.tensors import stack_bias, stack_sizes, vector
from octavo.platforms.stored import damage, quantized_rows, refuse_gpu_only
from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named

SLAB_BYTES = 64 << 20
ALIGN_BYTES = 128
HEADROOM_BYTES = 256 << 20  # that must stay free when weights move
HAS_MIN, ZERO8, HAS_ZEROS = 1, 2, 4
SCALE_FLAGS = {"f32": 0, "bf16": 8, "f16": 16}
GROUP_FLAGS = {32: 0, 64: 32, 128: 64}


@dataclass(frozen=True)
class PackedFormat:
    """How a checkpoint format runs: packed kind, flags, input form, bytes of a record, and of what ends a panel."""

    kind: str
    flags: int
    prepare: str  # '' = float32 rows as they are
    record_inputs: int
    record_bytes: int
    tail_bytes: int = 0

    def num_bytes(self, num_out: int, num_in: int) -> int:
        """Of a whole weight."""
        return -(-num_out // 16) * (-(-num_in // self.record_inputs) * self.record_bytes + self.tail_bytes)


_G32 = "prepare_i8g32"
_G256 = "prepare_i8g256"
PACKED: dict[str, PackedFormat] = {
    "f32": PackedFormat("f32", 0, "", 32, 2048),
    "f16": PackedFormat("f16", 0, "", 32, 1024),
    "bf16": PackedFormat("bf16", 0, "prepare_bf16", 32, 1024),
    "q4_0": PackedFormat("q4g32", ZERO8, _G32, 32, 288),
    "q4_1": PackedFormat("q4g32", HAS_MIN, _G32, 32, 320),
    "q5_0": PackedFormat("q5g32", 0, _G32, 32, 352),
    "q5_1": PackedFormat("q5g32", HAS_MIN, _G32, 32, 384),
    "q8_0": PackedFormat("q8g32", 0, _G32, 32, 544),
    "q2_k": PackedFormat("q2k", HAS_MIN, _G256, 256, 1344),
    "q3_k": PackedFormat("q3k", 0, _G256, 256, 1824),
    "q4_k": PackedFormat("q4k", HAS_MIN, _G256, 256, 2368),
    "q5_k": PackedFormat("q5k", HAS_MIN, _G256, 256, 2880),
    "q6_k": PackedFormat("q6k", 0, _G256, 256, 3360),
}
APART = ("w8a8", "i4g32", "i4g64", "i4g128")


def packed_format(form: str, scales: str, *, has_zeros: bool) -> PackedFormat:
    """The packed form of a tensor's layout; KeyError for a format that no kernel runs."""
    if form not in APART:
        return PACKED[form]
    flags = SCALE_FLAGS[scales] | (HAS_ZEROS if has_zeros else 0)
    group = format_named(form).group
    if not group:
        return PackedFormat("w8a8", flags, "prepare_i8row", 64, 1024, 64)
    record_bytes = 16 * (group // 2 + (4 if scales == "f32" else 2) + has_zeros)
    return PackedFormat("i4", flags | GROUP_FLAGS[group], f"prepare_i8g{group}", group, record_bytes)


def pack_op(form: str) -> str:
    """The kernel that packs a format."""
    return "pack_i4" if form.startswith("i4g") else f"pack_{form}"


@dataclass(frozen=True)
class PackedLinear:
    """A packed linear weight at `address`; `held` and `bias` keep the bytes alive."""

    format: str
    num_out: int
    num_in: int
    packed: PackedFormat
    address: int
    held: Any
    bias: NDArray[np.float32] | None = None

    @property
    def bias_address(self) -> int:
        return 0 if self.bias is None else self.bias.ctypes.data


@dataclass(frozen=True)
class StoredTable:
    """A table decoded row by row from the file map itself."""

    format: str
    num_rows: int
    width: int
    row_bytes: int
    data: NDArray[np.uint8]


@dataclass
class PackedWeights:
    """Implements `octavo.platforms.ops.Weights`. `prove` tests the kernels of a format before its first weight is packed."""

    stacks_gated: ClassVar[bool] = False
    native: Native
    team: Any
    cache: PackedCache | None = None
    prove: Callable[[str], None] | None = None
    is_dry: bool = False  # addresses and sizes only: memory is mapped, never touched
    packed_bytes: int = 0
    formats: set[str] = field(default_factory=set)
    _finite: set[str] = field(default_factory=set)  # names of tensors that packing has searched
    _slab: NDArray[np.uint8] | None = None
    _slab_used: int = 0

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> PackedLinear:
        name = quantize or parts[0].format
        form = self._format(parts[0], quantize)
        if self.prove is not None and name not in self.formats:
            self.prove(name)
        outs, num_in = stack_sizes(parts, name, transpose=transpose)
        num_out = sum(outs)
        num_bytes = form.num_bytes(num_out, num_in)
        key = f"{form.kind}{'^T' if transpose else ''} " + " ".join(part.name for part in parts)
        address, held = self._cached(key, num_bytes)
        if held is None:
            held = self._allocate(num_bytes)
            address = held.ctypes.data
            if not self.is_dry:
                first_row = 0
                for part, outputs in zip(parts, outs, strict=True):
                    threads = self.team.num_threads
                    for rows, piece in quantized_rows(part, quantize, transpose=transpose, num_threads=threads):
                        self._pack(
                            piece, form, first_row + rows, num_out, address, transpose=transpose and piece is part
                        )
                    first_row += outputs
                    self._finite.add(part.name)
            if self.cache is not None:
                self.cache.put(key, held)
        self.packed_bytes += num_bytes
        self.formats.add(name)
        values = stack_bias(bias, num_out)
        return PackedLinear(name, num_out, num_in, form, address, held, values)

    def embedding(self, table: RawTensor) -> StoredTable:
        if f"embedding_{table.format}" not in self.native.table:
            raise PlatformError(f"{table.name}: no embedding kernel for format {table.format}")
        rows, width = table.shape
        is_searched = table.name in self._finite or (self.cache is not None and self.cache.is_known)
        if not self.is_dry and not is_searched and (error := damage(table)):
            raise error
        return StoredTable(table.format, rows, width, table.data.nbytes // rows, table.data)

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> NDArray[np.float32]:
        return vector(tensor, add)

    def save(self) -> None:
        """Keeps what had to be packed on disk for the next load."""
        if self.cache is not None:
            self.cache.save()

    def settle(self) -> None:
        """Moves weights that are mapped from disk to huge pages, where the system has some and memory for a copy."""
        if self.cache is not None and (num_bytes := self.cache.num_mapped):
            limits = read_limits()
            if limits.thp in ("always", "madvise") and limits.free_memory > num_bytes + HEADROOM_BYTES:
                self.cache.settle()

    def _allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Room for a packed weight. Weights share large slabs, so that small ones too lie on 2 MiB pages, side by side."""
        if self._slab is None or self._slab_used + num_bytes > self._slab.nbytes:
            self._slab = np.frombuffer(self.native.arena(max(SLAB_BYTES, num_bytes), "weights"), np.uint8)
            self._slab_used = 0
        start = self._slab_used
        self._slab_used = -(-(start + num_bytes) // ALIGN_BYTES) * ALIGN_BYTES
        return self._slab[start : start + num_bytes]

    def _cached(self, key: str, num_bytes: int) -> tuple[int, Any]:
        """(address, holder) of a weight packed by an earlier load; (0, None) if there is none."""
        found = self.cache.get(key, num_bytes) if self.cache is not None else None
        return (0, None) if found is None else (found.ctypes.data, found)

    def _pack(
        self, part: RawTensor, form: PackedFormat, first_row: int, total: int, address: int, *, transpose: bool
    ) -> None:
        """Packs a tensor as outputs `first_row` and on of the panels at `address`; ModelError if it holds what is not finite."""
        num_in, outputs = part.shape if transpose else part.shape[::-1]
        bands = self.native.table[pack_op(part.format)].bands
        bad = np.zeros(1, np.int32)
        fields = {
            "source": part.data.ctypes.data,
            "row_bytes": part.data.nbytes // part.shape[0],
            "n": outputs,
            "k": num_in,
            "packed": address,
            "first_row": first_row,
            "total_n": total,
            "transposed": int(transpose),
            "flags": form.flags,
            "scales": 0 if part.scales is None else part.scales.data.ctypes.data,
            "zeros": 0 if part.zeros is None else part.zeros.data.ctypes.data,
            "groups": 0 if part.scales is None else part.scales.shape[-1],
            "bad": bad.ctypes.data,
        }
        program = self.native.module.Program()
        program.add(bands, (3, outputs), fields)
        run_alone(self.native, self.team, program)
        if bad[0]:
            raise damage(part, transpose=transpose) or ModelError(
                f"{part.name}: weights must be finite, and some are not"
            )

    def _format(self, tensor: RawTensor, quantize: str) -> PackedFormat:
        form, scales, has_zeros = tensor.layout
        if quantize:
            form, scales, has_zeros = quantize, "bf16" if format_named(quantize).group else "f32", False
        try:
            return packed_format(form, scales, has_zeros=has_zeros)
        except KeyError:
            refuse_gpu_only(tensor.name, form, self.native.platform)
            raise PlatformError(
                f"{tensor.name}: no {self.native.platform} kernel runs format {form}; it runs {', '.join((*PACKED, *APART))}"
            ) from None


def run_alone(native: Native, team: Any, program: Any) -> None:
    """Runs a program that needs no step (packing, copies)."""
    step = native.module.Step(0, 0, 0, None, None, None, None, None, None, None, 0, [])
    program.run(team, step, 0, len(program))
