"""Packed weights on disk: what a load packed once, the next load maps.

One file per model and packed layout, shared read-only by every process that serves it. The name says which checkpoint (by the
identity of its files: device, inode, size, times) and which layout; the instruction set does not matter, because one layout
serves every x86 level. Layout of a file, little-endian:

    0      magic "OCTAVOPK", version u32, table bytes u32, payload end u64, table digest (BLAKE3, 32 bytes); 64 bytes in all
    4096   payload: one weight after another, each 4 KiB-aligned
    end    table: msgpack map, key -> (offset, bytes, digest of the payload, 16 bytes)

A file is written under another name, synced, then renamed, so a torn one is never seen; a file that breaks the layout is a
counted miss and is replaced. Payload digests are checked by `damaged` (octavo doctor --all), not on the start path, which touches
no page of a weight: the first step does, in all threads (populating the map in one took 30 ms of 350 for 1.3 GB).
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import platform
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import blake3
import msgspec
import numpy as np
from numpy.typing import NDArray

log = logging.getLogger("octavo.platforms")
MAGIC = b"OCTAVOPK"
LAYOUT_VERSION = 3  # 2: packing has checked that every weight is finite; 3: codes in bit planes
PAGE_BYTES = 4096
LEFT_OVER_S = 3600.0
_UNFINISHED = ".packing-"
_HEAD = struct.Struct("<8sIIQ32s8x")

_SETTLE_BYTES = 32 << 20

Table = dict[str, tuple[int, int, bytes]]


def small_pages(fd: int, size: int) -> Any:
    """A file mapped read-only, its pages as the system has them. `FileMap` of the native module can also `settle`."""
    return mmap.mmap(fd, size, access=mmap.ACCESS_READ)


@dataclass
class PackedCache:
    """The packed copy of one model in `folder`. `origin` names the model (its old copies are replaced), `identity` its bytes."""

    folder: Path
    origin: bytes
    identity: bytes
    min_bytes: int = 0
    open_map: Callable[[int, int], Any] = small_pages
    num_hits: int = 0
    num_misses: int = 0
    _map: Any = None
    _bytes: NDArray[np.uint8] | None = None
    _table: Table = field(default_factory=dict)
    _new: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open()

    @property
    def path(self) -> Path:
        """Where this model's packed copy lives."""
        key = blake3.blake3(self.identity + LAYOUT_VERSION.to_bytes(4, "little")).hexdigest(16)
        return self.folder / f"{self._stem}-{key}.packed"

    @property
    def _stem(self) -> str:
        """Of this model's copies here. Chip families keep codes in their own way, and may share a folder."""
        return f"{blake3.blake3(self.origin).hexdigest(8)}-{platform.machine()}"

    @property
    def num_mapped(self) -> int:
        """Bytes of the file that is mapped, 0 for none."""
        return 0 if self._bytes is None else self._bytes.nbytes

    @property
    def is_known(self) -> bool:
        """Whether an earlier load kept this model here, and so has seen all its tensors."""
        return bool(self._table)

    def get(self, key: str, num_bytes: int) -> NDArray[np.uint8] | None:
        """The packed bytes of a weight, mapped, or None."""
        found = self._table.get(key)
        if found is None or self._bytes is None or found[1] != num_bytes:
            self.num_misses += 1
            return None
        self.num_hits += 1
        return self._bytes[found[0] : found[0] + found[1]]

    def put(self, key: str, packed: NDArray[np.uint8]) -> None:
        """Remembers a weight that had to be packed, for `save`."""
        self._new[key] = packed

    def save(self) -> Path | None:
        """Writes a new copy if anything was missing; None if there was nothing to do or no room. Slow: off the start path."""
        new, self._new = self._new, {}
        if not new or sum(packed.nbytes for packed in new.values()) < self.min_bytes:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_left_over()
            self._write({**self._kept(), **new})  # the file is replaced, so what it held goes along
        except OSError as error:
            log.warning("packed weights were not kept: %s", error)
            return None
        for old in self.folder.glob(f"{self._stem}-*.packed"):
            if old != self.path:
                with contextlib.suppress(OSError):
                    old.unlink()
        return self.path

    def _kept(self) -> dict[str, NDArray[np.uint8]]:
        """What the file of this model holds already."""
        held = self._bytes
        return {} if held is None else {key: held[at : at + size] for key, (at, size, _) in self._table.items()}

    def _remove_left_over(self) -> None:
        """Files of writers that were killed: nobody has written to them for an hour."""
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_OVER_S:
                    path.unlink()

    def verify(self) -> list[str]:
        """Keys whose payload does not match its digest."""
        return [] if self._bytes is None else _broken(self._bytes, self._table)

    def _write(self, new: dict[str, NDArray[np.uint8]]) -> None:
        import tempfile  # not needed to find a copy

        table: Table = {}
        handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as out:
                at = PAGE_BYTES
                for key, packed in new.items():
                    out.seek(at)
                    out.write(packed.data)
                    table[key] = (at, packed.nbytes, _digest(packed))
                    at = -(-(at + packed.nbytes) // PAGE_BYTES) * PAGE_BYTES
                text = msgspec.msgpack.encode(table)
                out.seek(at)
                out.write(text)
                out.seek(0)
                out.write(_HEAD.pack(MAGIC, LAYOUT_VERSION, len(text), at, blake3.blake3(text).digest()))
                out.flush()
                os.fsync(out.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def settle(self) -> int:
        """Moves mapped weights from small pages to huge ones, in place; a step of a 1B model then takes 28 ms instead of 36 (in a
        virtual machine). Returns the bytes moved: 0 where the system maps huge pages of files by itself, which shows once the
        weights have been used. Reads all of the file: off the start path."""
        done = 0
        if mapped_huge(str(self.path)) * 2 > self.num_mapped:
            return done
        while hasattr(self._map, "settle") and (moved := self._map.settle(done, _SETTLE_BYTES)):
            done += moved
        return done

    def _open(self) -> None:
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                mapped = self.open_map(file.fileno(), size)
        except (OSError, ValueError, RuntimeError):
            return
        held = np.frombuffer(mapped, np.uint8)
        table = _read_table(held)
        if table is None:
            log.warning("packed weights in %s are damaged; packing again", self.path.name)
            return
        self._table, self._map, self._bytes = table, mapped, held


def damaged(path: Path) -> str:
    """What is wrong with a packed copy, '' for nothing. Reads all of it. OSError if it cannot be read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        held = np.frombuffer(small_pages(file.fileno(), size) if size else b"", np.uint8)
    table = _read_table(held)
    if table is None:
        return "no copy of this version, or cut; the next load replaces it"
    broken = _broken(held, table)
    return (
        f"{len(broken)} of {len(table)} weights are not what was written, {broken[0]} the first; delete it"
        if broken
        else ""
    )


def _broken(held: NDArray[np.uint8], table: Table) -> list[str]:
    return [key for key, (at, size, digest) in table.items() if _digest(held[at : at + size]) != digest]


def mapped_huge(path: str) -> int:
    """Bytes of a file that this process has mapped as huge pages."""
    total, is_inside = 0, False
    try:
        with open("/proc/self/smaps") as file:
            for line in file:
                name, _, rest = line.partition(" ")
                if not name.endswith(":"):
                    is_inside = rest.rstrip("\n").endswith(path)
                elif is_inside and name == "FilePmdMapped:":
                    total += int(rest.split()[0]) << 10
    except OSError:
        pass
    return total


def _digest(packed: NDArray[np.uint8]) -> bytes:
    return blake3.blake3(packed.data).digest(16)


def _read_table(held: NDArray[np.uint8]) -> Table | None:
    """The table of a mapped file, or None if anything about the file is not as it must be."""
    size = held.size
    if size < PAGE_BYTES:
        return None
    magic, version, table_bytes, end, digest = _HEAD.unpack_from(held.data, 0)
    if magic != MAGIC or version != LAYOUT_VERSION or end + table_bytes != size:
        return None
    text = held[end : end + table_bytes].tobytes()
    if blake3.blake3(text).digest() != digest:
        return None
    try:
        table = msgspec.msgpack.decode(text, type=Table)
    except msgspec.DecodeError:
        return None
    if any(at < PAGE_BYTES or at % PAGE_BYTES or length < 0 or at + length > end for at, length, _ in table.values()):
        return None
    return table
