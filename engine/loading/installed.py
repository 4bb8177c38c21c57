"""A package as files and requirements, and those of an installed one read from its `.dist-info` folder.

`importlib.metadata` would do, but it costs 15 ms of every start from an installed model.

Invariant: no code of a package is imported or run. Sources: PEP 503 (names), PEP 566 (METADATA), PEP 627 (RECORD).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_INFO = ".dist-info"


@dataclass(frozen=True)
class Entry:
    """One file of a package. `path` is set when it lies uncompressed on disk."""

    name: PurePosixPath
    num_bytes: int
    open: Callable[[], BinaryIO]
    path: Path | None = None


@dataclass(frozen=True)
class Package:
    """A package's files and requirements, wherever it is."""

    name: str
    version: str
    requires: tuple[str, ...]
    entries: tuple[Entry, ...]


def normal_name(name: str) -> str:
    """PEP 503 normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_metadata(text: str, entries: tuple[Entry, ...], name: str) -> Package:
    """A package of its METADATA's headers; `name` where they have none."""
    headers: dict[str, list[str]] = {}
    for line in text.replace("\r\n", "\n").partition("\n\n")[0].splitlines():
        key, colon, value = line.partition(":")
        if colon and not key[:1].isspace():  # what is continued on further lines is of no use here
            headers.setdefault(key.lower(), []).append(value.strip())
    requires = tuple(headers.get("requires-dist", ()))
    return Package(headers.get("name", [name])[0], headers.get("version", ["0"])[0], requires, entries)


def installed(name: str, version: str | None) -> Package | None:
    """The installed package, None if there is none, it is another version, or its files are not recorded."""
    info = next(_infos(normal_name(name)), None)
    if info is None:
        return None
    try:
        metadata = (info / "METADATA").read_text("utf-8", "replace")
        record = (info / "RECORD").read_text("utf-8", "replace")
    except OSError:
        return None
    entries = []
    for line in record.splitlines():
        file = line.rsplit(",", 2)[0]  # path, hash, size
        if file.startswith('"'):
            file = file.strip('"').replace('""', '"')
        path = info.parent / file
        if _INFO not in file and path.is_file():
            entries.append(Entry(PurePosixPath(file), path.stat().st_size, _opener(path), path))
    package = read_metadata(metadata, tuple(entries), name)
    return package if entries and version in (None, package.version) else None


def _infos(name: str) -> Iterator[Path]:
    """The `.dist-info` folders of a package, in the order of imports."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # a zip file, or nothing
            continue
        for entry in entries:
            if entry.endswith(_INFO) and normal_name(entry.removesuffix(_INFO).rpartition("-")[0]) == name:
                yield Path(folder, entry)


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: open(path, "rb")
