"""One view of a model's weights, whatever files they lie in: GGUF (also split), safetensors (also sharded).

A model claims each tensor that it uses; `finish` fails the load when something is left over, so that a wrong name map
can never silently drop weights. After a tensor has been repacked, `drop` gives its file pages back, which keeps the
peak at packed weights plus the largest tensor.

Invariants: tensor names are unique over all files; `raw` never copies; `stat_key` is known at once, `digest` reads all
bytes once and is remembered (see `digest.py`). Shapes are in numpy order, sizes in bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.digest import StatKey, files_digest
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.mapped import Bytes, TensorInfo, WeightsFile
from octavo.engine.loading.safetensors import (
    INDEX_NAME,
    PICKLE_SUFFIXES,
    SafetensorsFile,
    open_shards,
    refuse_pickle,
)

_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$")
_MAX_SHOWN = 8


class Checkpoint:
    """All tensors of one model. Iterating gives names in file order; use it as a context manager or `close` it."""

    def __init__(self, files: Sequence[WeightsFile]) -> None:
        self.files = tuple(files)
        self._homes: dict[str, WeightsFile] = {}
        for file in self.files:
            for name in file.tensors:
                if name in self._homes:
                    raise ModelError(f"tensor {name!r} is in both {self._homes[name].path.name} and {file.path.name}")
                self._homes[name] = file
        self._claimed: set[str] = set()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Open a weights file (.gguf, .safetensors), a shard index, or a folder holding one model's weights."""
        path = Path(path)
        files = _open_folder(path) if path.is_dir() else _open_file(path)
        try:
            return cls(files)
        except BaseException:
            for file in files:
                file.close()
            raise

    @property
    def kind(self) -> str:
        """ "gguf" or "safetensors"."""
        return self.files[0].kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __len__(self) -> int:
        return len(self._homes)

    @property
    def num_bytes(self) -> int:
        """Stored bytes of all tensors."""
        return sum(info.num_bytes for file in self.files for info in file.tensors.values())

    def info(self, name: str) -> TensorInfo:
        """Name, format, shape and size of a tensor. ModelError with near names if there is none."""
        home = self._homes.get(name)
        if home is None:
            from difflib import get_close_matches  # only for this message: 3 ms of start time otherwise

            near = get_close_matches(name, self._homes, n=3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise ModelError(f"tensor {name!r} is not in {self.describe()} ({len(self)} tensors){hint}")
        return home.tensors[name]

    def raw(self, name: str) -> tuple[str, tuple[int, ...], Bytes]:
        """(format name, shape, stored bytes as read-only uint8 [num_bytes]) of a tensor."""
        info = self.info(name)
        return info.format, info.shape, self._homes[name].data(name)

    def claim(self, name: str) -> TensorInfo:
        """Say that the model uses `name` (again is fine: tied weights) and get its description."""
        info = self.info(name)
        self._claimed.add(name)
        return info

    def unclaimed(self) -> list[str]:
        """Names nobody claimed, in file order."""
        return [name for name in self._homes if name not in self._claimed]

    def finish(self, harmless: Iterable[str] = ()) -> None:
        """ModelError naming every tensor neither claimed nor matched by a `harmless` name (`*` and `?` allowed)."""
        patterns = tuple(harmless)
        left = [name for name in self.unclaimed() if not any(fnmatchcase(name, pattern) for pattern in patterns)]
        if left:
            shown = ", ".join(left[:_MAX_SHOWN]) + (f" and {len(left) - _MAX_SHOWN} more" if len(left) > 8 else "")
            raise ModelError(
                f"{self.describe()} holds {len(left)} tensors that the model does not use: {shown}; "
                "the architecture or the name map does not fit this checkpoint"
            )

    def drop(self, name: str) -> None:
        """Give the file pages behind a tensor back; reading it again is still possible, only slower."""
        info = self.info(name)
        self._homes[name].file.drop(info.offset, info.num_bytes)

    def prefetch(self) -> None:
        """Ask the system to read all files ahead; returns at once."""
        for file in self.files:
            file.file.prefetch()

    def stat_key(self) -> tuple[StatKey, ...]:
        """Per file (device, inode, size, mtime_ns, ctime_ns): the identity that is known without reading."""
        return tuple(file.file.stat_key() for file in self.files)

    def digest(self, cache_dir: Path | None = None) -> bytes:
        """32-byte content digest. Reads every byte unless remembered in `cache_dir`: never call it while starting."""
        return files_digest([file.file for file in self.files], cache_dir)

    def describe(self) -> str:
        """The path to name in messages."""
        first = str(self.files[0].path)
        return first if len(self.files) == 1 else f"{first} and {len(self.files) - 1} more files"

    def close(self) -> None:
        """Let go of all files; views already handed out stay valid."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _open_file(path: Path) -> list[WeightsFile]:
    refuse_pickle(path)
    if path.suffix == ".gguf":
        return _open_gguf(path)
    if path.suffix == ".safetensors":
        return [SafetensorsFile.open(path)]
    if path.name.endswith(".safetensors.index.json"):
        return list(open_shards(path))
    raise ModelError(f"{path} is not a weights file; .gguf, .safetensors and {INDEX_NAME} are")


def _open_gguf(path: Path) -> list[WeightsFile]:
    """Open a GGUF file and, when its metadata says that it is the first of several, the others."""
    first = GGUFFile.open(path)
    files: list[WeightsFile] = [first]
    try:
        count = first.metadata.get("split.count", 0)
        if not isinstance(count, int) or count <= 1:
            return files
        match = _SPLIT.match(path.name)
        if match is None or int(match["count"]) != count or first.metadata.get("split.no", 0) != int(match["no"]) - 1:
            raise FormatError(
                f"{path.name} is one of {count} parts, but is not named NAME-00001-of-{count:05}.gguf",
                field="split.count",
            )
        if int(match["no"]) != 1:
            raise ModelError(f"{path.name} is part {int(match['no'])} of {count}: give the first part")
        others = [path.with_name(f"{match['stem']}-{no:05}-of-{count:05}.gguf") for no in range(2, count + 1)]
        missing = [other.name for other in others if not other.is_file()]
        if missing:
            shown = ", ".join(missing[:_MAX_SHOWN])
            raise ModelError(f"{path.name} has {count} parts; {len(missing)} missing: {shown}")
        for no, other in enumerate(others, 1):
            part = GGUFFile.open(other)
            files.append(part)
            if part.metadata.get("split.no") != no or part.metadata.get("split.count") != count:
                raise FormatError(f"{other.name} is not part {no + 1} of {count}", field="split.no")
    except BaseException:
        for file in files:
            file.close()
        raise
    return files


def _is_later_part(name: str) -> bool:
    match = _SPLIT.match(name)
    return match is not None and int(match["no"]) != 1


def _open_folder(folder: Path) -> list[WeightsFile]:
    """The weights of a folder: a shard index, else the only weights file (split parts count as one)."""
    if (folder / INDEX_NAME).is_file():
        return list(open_shards(folder / INDEX_NAME))
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    single = [name for name in names if name == "model.safetensors"]
    tensors = single or [name for name in names if name.endswith(".safetensors")]
    found = tensors or [name for name in names if name.endswith(".gguf") and not _is_later_part(name)]
    if len(found) == 1:
        return _open_file(folder / found[0])
    if found:
        raise ModelError(f"{folder} holds several weights files: {', '.join(found[:_MAX_SHOWN])}; name one")
    for name in names:
        if Path(name).suffix.lower() in PICKLE_SUFFIXES:
            refuse_pickle(folder / name)
    raise ModelError(f"{folder} holds no weights: expected model.safetensors, {INDEX_NAME} or a .gguf file")
