"""A read-only file map, the description of one tensor inside it, and a weights file: both checkpoint formats build on these.

Invariants: the map is never written; views handed out are read-only `uint8`; offsets and sizes are bytes from the file
start. `close` lets go of the map; memory is unmapped when the last view dies, so a view can never dangle. A file that
somebody truncates while it is mapped cannot be guarded against here: replace model files by rename, never in place.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import FormatError, ModelError

Bytes: TypeAlias = npt.NDArray[np.uint8]
_File = TypeVar("_File", bound="WeightsFile")


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor. `format` is a name of `octavo.quant.formats`, `shape` is in numpy order (rows first)."""

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int  # bytes from the file start
    num_bytes: int


def stat_key(stat: os.stat_result) -> tuple[int, int, int, int, int]:
    """(device, inode, size in bytes, mtime_ns, ctime_ns): a file's identity that is known without reading it."""
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class MappedFile:
    """One file mapped read-only. `view` is the whole file as uint8 [size]."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self.stat = os.fstat(file.fileno())
                self.size = self.stat.st_size
                self._map: mmap.mmap | None = None
                if self.size:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(f"cannot open weights file {self.path}: {error.strerror or error}") from None
        self._view: Bytes | None = np.frombuffer(self._map if self._map is not None else b"", np.uint8)

    @property
    def view(self) -> Bytes:
        """The file as a read-only uint8 [size] array. ModelError after `close`."""
        if self._view is None:
            raise ModelError(f"weights file {self.path} is already closed")
        return self._view

    @property
    def buffer(self) -> mmap.mmap | bytes:
        """The same bytes as a buffer object, for `struct` (much faster there than an array)."""
        return self._map if self._map is not None else b""

    def stat_key(self) -> tuple[int, int, int, int, int]:
        """(device, inode, size in bytes, mtime_ns, ctime_ns) as of opening: changes when the file's content does."""
        return stat_key(self.stat)

    def drop(self, offset: int, num_bytes: int) -> None:
        """Give the pages of a range back to the system; a later read brings them in again, so this is always safe."""
        self._advise(getattr(mmap, "MADV_DONTNEED", None), offset, num_bytes)

    def prefetch(self, offset: int = 0, num_bytes: int | None = None) -> None:
        """Ask the system to read a range (default: all) ahead of use; returns at once."""
        self._advise(getattr(mmap, "MADV_WILLNEED", None), offset, self.size if num_bytes is None else num_bytes)

    def _advise(self, advice: int | None, offset: int, num_bytes: int) -> None:
        if advice is None or self._map is None or num_bytes <= 0:
            return
        start = offset - offset % mmap.PAGESIZE
        self._map.madvise(advice, start, offset + num_bytes - start)

    def close(self) -> None:
        """Let go of the map; views still held elsewhere stay valid."""
        self._view = None
        mapped, self._map = self._map, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # a view is still held: the map goes with it
                mapped.close()


class WeightsFile:
    """An open checkpoint file: `tensors` (name -> TensorInfo), `data(name)`. A format reads its header when made."""

    kind: ClassVar[str]
    tensors: dict[str, TensorInfo]

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.path = file.path

    @classmethod
    def open(cls: type[_File], path: str | os.PathLike[str]) -> _File:
        """Map `path` and read its header. ModelError if it cannot be opened, FormatError if it is not sound."""
        file = MappedFile(path)
        try:
            return cls(file)
        except FormatError as error:
            file.close()
            error.args = (f"{file.path}: {error}",)
            raise
        except BaseException:
            file.close()
            raise

    def data(self, name: str) -> Bytes:
        """The stored bytes of tensor `name`: read-only uint8 [num_bytes] in the map."""
        info = self.tensors[name]
        return self.file.view[info.offset : info.offset + info.num_bytes]

    def close(self) -> None:
        """Let go of the file; views already handed out stay valid."""
        self.file.close()


def check_no_overlap(tensors: Iterable[TensorInfo]) -> None:
    """FormatError naming both tensors if two byte ranges of one file overlap; empty tensors are nowhere."""
    previous: TensorInfo | None = None
    for info in sorted((t for t in tensors if t.num_bytes), key=lambda t: t.offset):
        if previous is not None and info.offset < previous.offset + previous.num_bytes:
            raise FormatError(
                f"tensors {previous.name!r} and {info.name!r} overlap: "
                f"{previous.offset}+{previous.num_bytes} bytes and {info.offset}+{info.num_bytes} bytes",
                field=info.name,
                offset=info.offset,
            )
        previous = info
