"""safetensors files, single and sharded, read over a memory map with every number of the header checked.

A file is: header length u64 little-endian, a JSON object (name -> {dtype, shape, data_offsets}, optional
`__metadata__`), tensor data. `data_offsets` count from the end of the header.

Invariants: the header is at most 100 MB; each range lies in the file and equals dtype size x shape; ranges neither
overlap nor leave holes (which also exposes a name written twice); a shard index and its shards name the same tensors.
Refusals are `FormatError`s naming field and byte offset. Nothing here can run code: pickled checkpoints are refused.
Source: https://github.com/huggingface/safetensors#format. Offsets and sizes are bytes from the file start.
"""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path

import msgspec

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.mapped import MappedFile, TensorInfo, WeightsFile, check_no_overlap
from octavo.quant.formats import BY_SAFETENSORS_DTYPE

MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 16
MAX_INDEX_BYTES = 100_000_000
INDEX_NAME = "model.safetensors.index.json"
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})

_Header = dict[str, dict[str, str | list[int]]]
_HEADER_DECODER = msgspec.json.Decoder(_Header)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX_DECODER = msgspec.json.Decoder(_Index)


class SafetensorsFile(WeightsFile):
    """A safetensors file. `metadata` maps str to str."""

    kind = "safetensors"

    def __init__(self, file: MappedFile) -> None:
        super().__init__(file)
        self.metadata: dict[str, str] = {}
        self.tensors = self._read_header()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SafetensorsFile:
        """Like `WeightsFile.open`; a pickled file is refused unopened."""
        refuse_pickle(path)
        return super().open(path)

    def _read_header(self) -> dict[str, TensorInfo]:
        size = self.file.size
        if size < 8:
            raise FormatError(
                f"the file has {size} bytes; 8 hold the header length: is it complete?", field="header_length", offset=0
            )
        (length,) = struct.unpack_from("<Q", self.file.buffer, 0)
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            doubt = ": is the file complete?" if 2 <= length <= MAX_HEADER_BYTES else ""
            raise FormatError(
                f"a header of {length} bytes does not fit: 2 to {MAX_HEADER_BYTES}, and {size - 8} bytes are left{doubt}",
                field="header_length",
                offset=0,
            )
        raw = bytes(self.file.buffer[8 : 8 + length])
        if raw[:1] != b"{":
            raise FormatError("the header does not begin with '{'", field="header", offset=8)
        try:
            header = _HEADER_DECODER.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise FormatError(f"the header is not a JSON table of tensors: {error}", field="header", offset=8) from None
        for key, value in header.pop("__metadata__", {}).items():
            if not isinstance(value, str):
                raise FormatError("a metadata value is not a string", field=f"__metadata__.{key}"[:200], offset=8)
            self.metadata[key] = value
        begin = 8 + length
        tensors = {name: _describe(name, entry, begin, size) for name, entry in header.items()}
        check_no_overlap(tensors.values())
        covered = sum(info.num_bytes for info in tensors.values())
        if covered != size - begin:
            raise FormatError(
                f"tensors cover {covered} of {size - begin} data bytes: the file is damaged or a name is given twice",
                field="data_offsets",
                offset=begin,
            )
        return tensors


def _describe(name: str, entry: dict[str, str | list[int]], begin: int, size: int) -> TensorInfo:
    """Check one header entry; `begin` is where tensor data starts."""
    if not name:
        raise FormatError("a tensor name is empty", field="header", offset=8)
    field = name[:200]
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list) or len(entry) != 3:
        raise FormatError("an entry needs exactly dtype, shape and data_offsets", field=field, offset=8)
    form = BY_SAFETENSORS_DTYPE.get(dtype)
    if form is None:
        raise FormatError(
            f"dtype {dtype[:40]!r} is not known; known: {', '.join(BY_SAFETENSORS_DTYPE)}", field=field, offset=8
        )
    if len(shape) > MAX_DIMS or any(n < 0 for n in shape):
        raise FormatError(f"shape {shape[:MAX_DIMS]} is not up to {MAX_DIMS} sizes of 0 or more", field=field, offset=8)
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= size - begin:
        doubt = ": is the file complete?" if len(offsets) == 2 and 0 <= offsets[0] <= offsets[1] else ""
        raise FormatError(
            f"data_offsets {offsets[:4]} are not a range in the {size - begin} bytes of data{doubt}",
            field=field,
            offset=8,
        )
    num_bytes = prod(shape) * form.block_bytes
    if offsets[1] - offsets[0] != num_bytes:
        raise FormatError(
            f"{dtype} {shape} takes {num_bytes} bytes; its range has {offsets[1] - offsets[0]}",
            field=field,
            offset=begin + offsets[0],
        )
    return TensorInfo(name, form.name, tuple(shape), begin + offsets[0], num_bytes)


def open_shards(index_path: str | os.PathLike[str]) -> list[SafetensorsFile]:
    """Open every shard that a `model.safetensors.index.json` lists and check that they agree with it.

    ModelError naming all missing shards at once; FormatError for an unsound index or shard.
    """
    index_path = Path(index_path)
    shards = _read_index(index_path)
    missing = [name for name in shards if not (index_path.parent / name).is_file()]
    if missing:
        raise ModelError(f"{index_path} lists {len(shards)} shards; missing: {', '.join(missing)}")
    files: list[SafetensorsFile] = []
    try:
        for shard, listed in shards.items():
            file = SafetensorsFile.open(index_path.parent / shard)
            files.append(file)
            absent = sorted(listed - file.tensors.keys())
            extra = sorted(file.tensors.keys() - listed)
            if absent or extra:
                what = "does not hold" if absent else "holds, but the index does not place there,"
                raise ModelError(
                    f"{index_path.name} and shard {shard} disagree: the shard {what} {', '.join((absent or extra)[:5])}"
                )
    except BaseException:
        for file in files:
            file.close()
        raise
    return files


def _read_index(index_path: Path) -> dict[str, set[str]]:
    """Shard file name -> names of its tensors."""
    try:
        if index_path.stat().st_size > MAX_INDEX_BYTES:
            raise FormatError(f"{index_path} is larger than {MAX_INDEX_BYTES} bytes", field="index", offset=0)
        weight_map = _INDEX_DECODER.decode(index_path.read_bytes()).weight_map
    except OSError as error:
        raise ModelError(f"cannot read {index_path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FormatError(f"{index_path} is not a shard index: {error}", field="weight_map", offset=0) from None
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not shard.endswith(".safetensors") or "/" in shard or "\\" in shard or "\0" in shard:
            raise FormatError(
                f"{shard[:200]!r} is not the plain name of a .safetensors file", field=f"weight_map.{name}"[:200]
            )
        shards.setdefault(shard, set()).add(name)
    if not shards:
        raise FormatError(f"{index_path} lists no tensors", field="weight_map", offset=0)
    return shards


def refuse_pickle(path: str | os.PathLike[str]) -> None:
    """ModelError if `path` is a pickled checkpoint: unpickling runs code written by the file's author."""
    if Path(path).suffix.lower() in PICKLE_SUFFIXES:
        raise ModelError(
            f"{path} is a pickled checkpoint, which can run code when it is read; only .safetensors and .gguf are "
            "loaded: convert it on a machine you trust, or take the model's safetensors version"
        )
