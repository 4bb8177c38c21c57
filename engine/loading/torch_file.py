"""Small tensors of a .pt file as torch.save writes it: an archive of raw storages and a pickle that says what they are.

The pickle is not run: its opcodes are read by a machine that knows a state dict's and nothing else, so that nothing in the file
is ever imported or called. Invariants: only stored (not compressed) entries within the size cap are read; tensors are contiguous
float32, float16 or bfloat16. Meant for a few vectors and matrices beside a model, not for models.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import FormatError

Stored = tuple[str, tuple[int, ...], NDArray[np.uint8]]  # (format, shape, bytes), as `Checkpoint.raw` gives them

MAX_BYTES = 256 << 20
_MAX_PICKLE = 1 << 20
_STORAGES = {"FloatStorage": ("f32", 4), "HalfStorage": ("f16", 2), "BFloat16Storage": ("bf16", 2)}
_CONSTANTS: dict[str, Any] = {"NEWFALSE": False, "NEWTRUE": True, "NONE": None}


@dataclass(frozen=True)
class _Global:
    """A name that the pickle would import."""

    name: str


@dataclass(frozen=True)
class _Storage:
    format: str
    item_bytes: int
    key: str
    count: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]


def read_torch_file(path: Path) -> dict[str, Stored]:
    """Every tensor of a state dict by name. FormatError for anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            described = _stored(archive, entries, "data.pkl", path, _MAX_PICKLE)
            found = _Machine(path).run(described)
            return {name: _tensor(archive, entries, name, tensor, path) for name, tensor in found.items()}
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise FormatError(f"{path} is not a file of torch.save: {error}", field=path.name) from None


def _stored(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], name: str, path: Path, most: int) -> bytes:
    info = entries.get(name)
    if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size > most:
        raise FormatError(f"{path} holds no {name} that is stored in {most} bytes or fewer", field=name)
    return archive.read(info)


def _tensor(
    archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], name: str, tensor: _Tensor, path: Path
) -> Stored:
    storage, count = tensor.storage, prod(tensor.shape)
    data = _stored(archive, entries, f"data/{storage.key}", path, MAX_BYTES)
    start, end = tensor.offset * storage.item_bytes, (tensor.offset + count) * storage.item_bytes
    if not 0 <= start <= end <= len(data):
        raise FormatError(f"{path}: tensor {name} goes beyond its storage", field=name)
    values = np.frombuffer(data, np.uint8)[start:end]
    return storage.format, tensor.shape, values


class _Machine:
    """The opcodes of a state dict, on a stack of plain values. Every other opcode is a FormatError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> dict[str, _Tensor]:
        """The state dict."""
        try:
            for opcode, argument, _ in pickletools.genops(data):
                self.step(opcode.name, argument)
            (found,) = self.stack
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise self.bad(f"its description is broken ({error})") from None
        is_good = isinstance(found, dict) and all(
            isinstance(k, str) and isinstance(v, _Tensor) for k, v in found.items()
        )
        if not is_good:
            raise self.bad("it holds other things than tensors by name")
        return dict(found)

    def step(self, name: str, argument: Any) -> None:
        """One opcode."""
        stack = self.stack
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"):
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            stack.append(_Global(argument))
        elif name in _MAKERS:
            _MAKERS[name](self)
        else:
            raise self.bad(f"its description uses {name}, which a state dict does not need")

    def popped(self) -> list[Any]:
        """What lies above the last mark."""
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def tuple_of(self, count: int) -> None:
        found = tuple(self.stack[len(self.stack) - count :])
        if len(found) != count:
            raise self.bad("its description is broken")
        del self.stack[len(self.stack) - count :]
        self.stack.append(found)

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise self.bad("its description is broken")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))

    def storage(self) -> None:
        """A persistent id: ("storage", its class, key, device, number of values)."""
        kind, form, key, _, count = self.stack.pop()
        stem = form.name.partition(" ")[2] if isinstance(form, _Global) and form.name.startswith("torch ") else ""
        if kind != "storage" or stem not in _STORAGES or not isinstance(key, str) or not isinstance(count, int):
            raise self.bad(f"it holds a storage of {form}; served are {', '.join(_STORAGES)}")
        self.stack.append(_Storage(*_STORAGES[stem], key, count))

    def reduce(self) -> None:
        """A call, of which three are known and none is made."""
        arguments, called = self.stack.pop(), self.stack.pop()
        name = called.name if isinstance(called, _Global) else repr(called)
        if name == "collections OrderedDict" and arguments == ():
            self.stack.append({})
        elif name == "torch._utils _rebuild_tensor_v2":
            storage, offset, shape, strides, *_ = arguments
            wanted = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
            is_plain = isinstance(storage, _Storage) and isinstance(offset, int) and tuple(strides) == wanted
            if not is_plain or not all(isinstance(n, int) and n > 0 for n in shape):
                raise self.bad(f"it holds a tensor of shape {shape} and strides {strides}; contiguous ones are served")
            self.stack.append(_Tensor(storage, offset, tuple(shape)))
        elif name == "torch._utils _rebuild_parameter" and isinstance(arguments[0], _Tensor):
            self.stack.append(arguments[0])
        else:
            raise self.bad(f"it would call {name}; a file of tensors does not")

    def build(self) -> None:
        """State of an object: of a state dict, metadata that nothing needs."""
        self.stack.pop()

    def bad(self, why: str) -> FormatError:
        return FormatError(
            f"{self.path} is not read: {why}; save its tensors as {self.path.stem}.safetensors", field=self.path.name
        )


_MAKERS: dict[str, Callable[[_Machine], None]] = {
    "EMPTY_DICT": lambda machine: machine.stack.append({}),
    "EMPTY_TUPLE": lambda machine: machine.stack.append(()),
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.popped())),
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "SETITEM": lambda machine: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine: machine.set_items(machine.popped()),
    "BINPERSID": lambda machine: machine.storage(),
    "REDUCE": lambda machine: machine.reduce(),
    "BUILD": lambda machine: machine.build(),
}
