"""The table of kernels that travels with code objects: what each is called, what it takes, and how many blocks it wants.

The build writes it (`ci/gpu.py`) from the sources themselves (`csrc_common/gpu`), so that launcher and kernel cannot differ.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.engine.errors import PlatformError

_PACK = {"pointer": "<Q", "i64": "<q", "i32": "<i", "f32": "<f", "rows": "<ii", "kernel": "<Q"}
STEP_BYTES = 8  # kernels take the step's address, then their arguments


@dataclass(frozen=True)
class Field:
    """One argument: where it lies in the op's arguments, and as what."""

    name: str
    offset: int
    kind: str


@dataclass(frozen=True)
class GpuRow:
    """One kernel. A block has `threads` and computes `tile_rows` rows and `tile_outs` outputs (0: all). `args_bytes`: of its
    arguments, zeros behind the op's own among them. Its code object runs on `only` that chip, if it names one."""

    op: str
    level: str
    threads: int
    tile_rows: int
    tile_outs: int
    args_bytes: int
    fields: tuple[Field, ...]
    file: str  # the code object that holds it
    shared_bytes: int = 0  # of shared memory that a launch must ask for, beside what the kernel declares
    only: str = ""
    digest: str = ""  # of the code object (`digest_of`); '' where the build wrote none

    @property
    def name(self) -> str:
        return f"{self.op}__{self.level}"

    @property
    def is_beside(self) -> bool:
        """Whether it does only what the kernel for few rows leaves of a step: both run."""
        return self.op.startswith("paged_attention_") and self.level == "mmafastwide"

    def pack(self, into: bytearray, values: Mapping[str, Any], *, is_whole: bool = True) -> None:
        """Writes arguments, at their places behind the step's address. Names that the op lacks, or left out, are errors."""
        known = {field.name: field for field in self.fields}
        if (is_whole and known.keys() != values.keys()) or not values.keys() <= known.keys():
            odd = sorted(known.keys() ^ values.keys())
            raise PlatformError(f"{self.name}: arguments do not match those of the kernel: {', '.join(odd)}")
        for name, value in values.items():
            field = known[name]
            words = value if field.kind == "rows" else (value,)
            struct.pack_into(_PACK[field.kind], into, STEP_BYTES + field.offset, *words)

    def number(self, arguments: bytes | bytearray, name: str) -> int:
        """A whole number among packed arguments; 0 if the op has none of that name."""
        for field in self.fields:
            if field.name == name:
                return int(struct.unpack_from(_PACK[field.kind], arguments, STEP_BYTES + field.offset)[0])
        return 0


def bounded(op: str, size: int, ops: Iterable[str]) -> str:
    """The op among `ops` that serves `size` with the least room to spare: kernels of `<op>_d<N>` serve heads of up to N
    dimensions. `op` itself, which has no bound, where there is none."""
    bounds = (name.removeprefix(f"{op}_d") for name in ops if name.startswith(f"{op}_d"))
    fitting = [int(bound) for bound in bounds if bound.isdigit() and int(bound) >= size]
    return f"{op}_d{min(fitting)}" if fitting else op


def digest_of(code: bytes) -> str:
    """Of a code object, as tables have it: 32 hex digits."""
    return hashlib.blake2b(code, digest_size=16).hexdigest()


def read_rows(text: str) -> list[GpuRow]:
    """Rows of a table as the build wrote it. ValueError, TypeError or KeyError where it is none, or no launch could use a row."""
    rows = [GpuRow(**{**row, "fields": tuple(Field(*field) for field in row["fields"])}) for row in json.loads(text)]
    if not rows:
        raise ValueError("it lists no kernel")
    for row in rows:
        if problem := _problem(row):
            raise ValueError(f"{row.name}: {problem}")
    return rows


def _problem(row: GpuRow) -> str:
    numbers = (row.threads, row.tile_rows, row.tile_outs, row.args_bytes, row.shared_bytes)
    if not all(isinstance(number, int) and number >= 0 for number in numbers) or not (row.threads and row.tile_rows):
        return f"sizes of {numbers}"
    if not row.tile_outs and row.op.startswith("linear_"):
        return "a product's tile of no outputs"
    if Path(row.file).name != row.file:
        return f"a code object at {row.file!r}, outside the folder"
    for field in row.fields:
        size = struct.calcsize(_PACK[field.kind]) if field.kind in _PACK else 0
        if not size or field.offset < 0 or field.offset + size > row.args_bytes:
            return f"argument {field.name}, {field.kind} at {field.offset} of {row.args_bytes} bytes"
    return ""


def rows_of(folder: Path) -> list[GpuRow]:
    """Rows of the kernels that a folder of code objects holds."""
    return read_rows((folder / "kernels.json").read_text())
