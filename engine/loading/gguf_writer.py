"""Writes GGUF version 3 files: metadata first, then tensors one at a time.

Invariants: what is written is read back by `gguf.GGUFFile` unchanged; the file appears under its name only when it is
complete (temporary file, then rename); tensor bytes may be given as a function, so that no more than one tensor is in
memory. Integers are stored as u32 where they fit, else i32, i64 or u64; floats as f32; a type may be named instead.
Offsets are multiples of `alignment` bytes. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.gguf import ARRAY, DEFAULT_ALIGNMENT, SCALARS, STRING
from octavo.engine.loading.mapped import Bytes
from octavo.quant.formats import format_named

_TYPE_IDS = {name: kind for kind, (name, _, _) in SCALARS.items()} | {"str": STRING}
_NUMPY_TYPES = {dtype: kind for kind, (_, _, dtype) in SCALARS.items() if kind != _TYPE_IDS["bool"]}


class GGUFWriter:
    """Collects keys and tensors, then `write(path)`.

    >>> writer = GGUFWriter()
    >>> writer.add("general.architecture", "llama")
    >>> writer.add_tensor("output.weight", "f32", (2, 4), np.zeros(32, np.uint8))
    """

    def __init__(self, *, alignment: int = DEFAULT_ALIGNMENT) -> None:
        self.alignment = alignment
        self._keys: dict[str, bytes] = {}
        self._tensors: dict[str, tuple[str, tuple[int, ...], Bytes | Callable[[], Bytes]]] = {}
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment)

    def add(self, key: str, value: Any, value_type: str | None = None) -> None:
        """Set metadata `key`. `value`: bool, int, float, str, a sequence of those, or a 1-D numpy array.

        `value_type` names the (element) type: u8 i8 u16 i16 u32 i32 f32 bool str u64 i64 f64.
        """
        if not key or key in self._keys:
            raise ModelError(f"GGUF key {key!r} is " + ("already set" if key else "empty"))
        self._keys[key] = _encode_value(key, value, value_type)

    def add_tensor(self, name: str, format_name: str, shape: Sequence[int], raw: Bytes | Callable[[], Bytes]) -> None:
        """Add a tensor: `shape` in numpy order, `raw` its stored bytes (any uint8 shape) or a function giving them."""
        if not name or name in self._tensors:
            raise ModelError(f"GGUF tensor {name!r} is " + ("already added" if name else "unnamed"))
        self._tensors[name] = (format_name, tuple(int(n) for n in shape), raw)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`. ModelError if a tensor's bytes do not match its format and shape."""
        target = Path(path)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                self._write_header(file)
                for name, (format_name, shape, raw) in self._tensors.items():
                    _pad(file, self.alignment)
                    content = np.ascontiguousarray(raw() if callable(raw) else raw)
                    expected = format_named(format_name).num_bytes(shape)
                    if content.nbytes != expected:
                        raise ModelError(
                            f"tensor {name!r} has {content.nbytes} bytes; {format_name} {shape} takes {expected}"
                        )
                    file.write(content.data)
                _pad(file, self.alignment)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def _write_header(self, file: BinaryIO) -> None:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._keys)))
        for key, encoded in self._keys.items():
            file.write(_encode_text(key) + encoded)
        offset = 0
        for name, (format_name, shape, _) in self._tensors.items():
            form = format_named(format_name)
            if form.gguf_type is None:
                raise ModelError(f"tensor {name!r}: format {format_name} cannot be stored in a GGUF file")
            file.write(_encode_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
            file.write(struct.pack("<IQ", form.gguf_type, offset))
            offset += -(-form.num_bytes(shape) // self.alignment) * self.alignment


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(b"\0" * (-file.tell() % alignment))


def _encode_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _encode_value(key: str, value: Any, value_type: str | None) -> bytes:
    if isinstance(value, np.ndarray):
        return _encode_numpy(key, value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = list(value)
        kind = _type_of(key, items, value_type)
        head = struct.pack("<IIQ", ARRAY, kind, len(items))
        if kind == STRING:
            return head + b"".join(_encode_text(item) for item in items)
        return head + b"".join(_encode_scalar(key, kind, item) for item in items)
    kind = _type_of(key, [value], value_type)
    return struct.pack("<I", kind) + (_encode_text(value) if kind == STRING else _encode_scalar(key, kind, value))


def _encode_numpy(key: str, array: np.ndarray[Any, Any]) -> bytes:
    kind = _TYPE_IDS["bool"] if array.dtype == np.bool_ else _NUMPY_TYPES.get(array.dtype.newbyteorder("<"))
    if kind is None or array.ndim != 1:
        raise ModelError(f"GGUF key {key!r}: a {array.ndim}-D array of {array.dtype} cannot be stored")
    return struct.pack("<IIQ", ARRAY, kind, len(array)) + array.astype(array.dtype.newbyteorder("<")).tobytes()


def _encode_scalar(key: str, kind: int, value: Any) -> bytes:
    try:
        return SCALARS[kind][1].pack(value)
    except (struct.error, OverflowError) as error:
        raise ModelError(f"GGUF key {key!r}: {value!r} does not fit type {SCALARS[kind][0]}: {error}") from None


def _type_of(key: str, items: list[Any], value_type: str | None) -> int:
    if value_type is not None:
        if value_type not in _TYPE_IDS:
            raise ModelError(f"GGUF key {key!r}: unknown type {value_type!r}; known: {', '.join(_TYPE_IDS)}")
        return _TYPE_IDS[value_type]
    kinds = {type(item) for item in items}
    if kinds == {str}:
        return STRING
    if kinds == {bool}:
        return _TYPE_IDS["bool"]
    if kinds == {int}:
        low, high = min(items), max(items)
        if low < 0:
            return _TYPE_IDS["i32" if low >= -(1 << 31) and high < 1 << 31 else "i64"]
        return _TYPE_IDS["u32" if high < 1 << 32 else "u64"]
    if kinds in ({float}, {int, float}):
        return _TYPE_IDS["f32"]
    raise ModelError(f"GGUF key {key!r}: cannot store {sorted(kind.__name__ for kind in kinds)}; name a value_type")
