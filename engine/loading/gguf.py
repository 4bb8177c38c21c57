"""GGUF version 2 and 3 header, read over a memory map with every count, length and offset checked before it is used.

A file is: magic "GGUF", version u32, tensor count u64, key count u64, the keys (name, type, value), the tensor
descriptions (name, dimensions, type, offset), padding to `general.alignment`, tensor data. All little-endian;
dimensions are stored fastest first, so `TensorInfo.shape` is their reverse.

Invariants: a hostile header costs memory in proportion to the file, never to a number written in it; every refusal is
a `FormatError` naming field and byte offset; no tensor reaches outside the file or over another; names are unique.
Numeric arrays become read-only numpy arrays and string arrays `StringArray` over the map, both without a copy.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Offsets and sizes are bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from octavo.engine.errors import FormatError
from octavo.engine.loading.mapped import MappedFile, TensorInfo, WeightsFile, check_no_overlap
from octavo.engine.loading.string_array import scan_strings
from octavo.quant.formats import BY_GGUF_TYPE

DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT = 8
MAX_ALIGNMENT = 1 << 21
MAX_DIMS = 4
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 1024
MAX_TEXT_BYTES = 1 << 28
MAX_ARRAY_ITEMS = 1 << 26
MAX_ARRAY_DEPTH = 4
MAX_NESTED_ARRAYS = 1 << 14

_MIN_KEY_BYTES = 8 + 1 + 4 + 1  # length, one character, type, smallest value
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8  # length, one character, dimension count, type, offset

BOOL, STRING, ARRAY = 7, 8, 9
# type id -> (name, struct code, numpy dtype)
SCALARS: dict[int, tuple[str, struct.Struct, np.dtype[Any]]] = {
    0: ("u8", struct.Struct("<B"), np.dtype("u1")),
    1: ("i8", struct.Struct("<b"), np.dtype("i1")),
    2: ("u16", struct.Struct("<H"), np.dtype("<u2")),
    3: ("i16", struct.Struct("<h"), np.dtype("<i2")),
    4: ("u32", struct.Struct("<I"), np.dtype("<u4")),
    5: ("i32", struct.Struct("<i"), np.dtype("<i4")),
    6: ("f32", struct.Struct("<f"), np.dtype("<f4")),
    BOOL: ("bool", struct.Struct("<B"), np.dtype("u1")),
    10: ("u64", struct.Struct("<Q"), np.dtype("<u8")),
    11: ("i64", struct.Struct("<q"), np.dtype("<i8")),
    12: ("f64", struct.Struct("<d"), np.dtype("<f8")),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class GGUFFile(WeightsFile):
    """A GGUF file. `metadata` maps keys to values.

    Values are int, float, bool, str, numpy arrays (bool arrays are bool), StringArray, or lists (nested arrays).
    """

    kind = "gguf"

    def __init__(self, file: MappedFile) -> None:
        super().__init__(file)
        header = _Header(file)
        self.version: int = header.version
        self.metadata: dict[str, Any] = header.read_keys()
        self.alignment: int = header.alignment(self.metadata)
        self.tensors = header.read_tensors(self.alignment)
        self.data_offset: int = header.data_offset


class _Header:
    """A cursor that never passes the end of the file."""

    def __init__(self, file: MappedFile) -> None:
        self.view = file.view
        self.buffer = file.buffer
        self.size = file.size
        self.pos = 0
        self.data_offset = 0
        self.num_nested = 0
        self.alignment_pos = 0
        self._read_preamble()

    def _read_preamble(self) -> None:
        magic = bytes(self.buffer[:4])
        if magic != b"GGUF":
            found = f"it begins with {magic!r}" if magic else "it is empty"
            raise FormatError(f"not a GGUF file: {found}", field="magic", offset=0)
        self.pos = 4
        self.version = self.u32("version")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            if 0 < swapped < 1 << 16:
                raise FormatError(
                    f"big-endian GGUF (version {swapped}); only little-endian files are read: convert it again",
                    field="version",
                    offset=4,
                )
            raise FormatError(f"GGUF version {self.version} is not known; 2 and 3 are", field="version", offset=4)
        self.num_tensors = self.count("tensor_count", _MIN_TENSOR_BYTES, MAX_TENSORS)
        self.num_keys = self.count("metadata_kv_count", _MIN_KEY_BYTES, MAX_KEYS)

    def need(self, num_bytes: int, field: str) -> int:
        """The current offset, after moving `num_bytes` ahead."""
        start = self.pos
        if num_bytes > self.size - start:
            raise FormatError(
                f"the file ends early: {num_bytes} bytes needed, {self.size - start} left; is it complete?",
                field=field,
                offset=start,
            )
        self.pos = start + num_bytes
        return start

    def u32(self, field: str) -> int:
        value: int = _U32.unpack_from(self.buffer, self.need(4, field))[0]
        return value

    def u64(self, field: str) -> int:
        value: int = _U64.unpack_from(self.buffer, self.need(8, field))[0]
        return value

    def count(self, field: str, item_bytes: int, most: int) -> int:
        """A u64 count of items that take at least `item_bytes` each, refused if the file cannot hold them."""
        value = self.u64(field)
        left = self.size - self.pos
        if value > most or value * item_bytes > left:
            allowed = (
                f"at most {most}" if value > most else f"{item_bytes} bytes each, and {left} are left; is it complete?"
            )
            raise FormatError(f"a count of {value} does not fit: {allowed}", field=field, offset=self.pos - 8)
        return value

    def text(self, field: str, most: int, *, is_strict: bool) -> str:
        """A length-prefixed string. Names must be UTF-8; in values a broken byte becomes U+FFFD."""
        length = self.u64(field)
        if length > most or length > self.size - self.pos:
            raise FormatError(
                f"a string of {length} bytes does not fit: at most {most}, and {self.size - self.pos} bytes are left",
                field=field,
                offset=self.pos - 8,
            )
        start = self.need(length, field)
        raw = bytes(self.buffer[start : start + length])
        try:
            return raw.decode("utf-8", "strict" if is_strict else "replace")
        except UnicodeDecodeError as error:
            raise FormatError("a name is not valid UTF-8", field=field, offset=start + error.start) from None

    def read_keys(self) -> dict[str, Any]:
        """All keys and values in file order."""
        found: dict[str, Any] = {}
        for index in range(self.num_keys):
            start = self.pos
            key = self.text(f"key {index}", MAX_KEY_BYTES, is_strict=True)
            if not key:
                raise FormatError("a key is empty", field=f"key {index}", offset=start)
            if key in found:
                raise FormatError("a key appears twice", field=key, offset=start)
            kind = self.u32(key)
            if key == "general.alignment":
                self.alignment_pos = self.pos
            found[key] = self.value(kind, key)
        return found

    def value(self, kind: int, field: str) -> Any:
        """One value of type id `kind`."""
        if kind == STRING:
            return self.text(field, MAX_TEXT_BYTES, is_strict=False)
        if kind == ARRAY:
            return self.array(field, 1)
        scalar = SCALARS.get(kind)
        if scalar is None:
            raise FormatError(f"value type {kind} is not known; 0 to 12 are", field=field, offset=self.pos - 4)
        start = self.need(scalar[1].size, field)
        (number,) = scalar[1].unpack_from(self.buffer, start)
        if kind == BOOL:
            if number > 1:
                raise FormatError(f"a bool holds {number}; 0 and 1 are allowed", field=field, offset=start)
            return number == 1
        return number

    def array(self, field: str, depth: int) -> Any:
        """An array value; nested ones become lists."""
        start = self.pos
        kind = self.u32(field)
        scalar = SCALARS.get(kind)
        if scalar is not None:
            count = self.count(field, scalar[2].itemsize, MAX_ARRAY_ITEMS)
            begin = self.need(count * scalar[2].itemsize, field)
            array = self.view[begin : self.pos].view(scalar[2])
            if kind != BOOL:
                return array
            if count and int(array.max()) > 1:
                bad = begin + int(np.argmax(array > 1))
                raise FormatError("a bool array holds a value other than 0 and 1", field=field, offset=bad)
            return array.view(np.bool_)
        if kind == STRING:
            count = self.count(field, 8, MAX_ARRAY_ITEMS)
            strings, self.pos = scan_strings(self.view, self.buffer, self.pos, count, field)
            return strings
        if kind != ARRAY:
            raise FormatError(f"array type {kind} is not known; 0 to 12 are", field=field, offset=start)
        if depth >= MAX_ARRAY_DEPTH:
            raise FormatError(f"arrays are nested deeper than {MAX_ARRAY_DEPTH}", field=field, offset=start)
        count = self.count(field, 12, MAX_NESTED_ARRAYS)
        self.num_nested += count
        if self.num_nested > MAX_NESTED_ARRAYS:
            raise FormatError(f"more than {MAX_NESTED_ARRAYS} nested arrays", field=field, offset=start)
        return [self.array(field, depth + 1) for _ in range(count)]

    def alignment(self, metadata: dict[str, Any]) -> int:
        """The data alignment in bytes."""
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or not MIN_ALIGNMENT <= value <= MAX_ALIGNMENT or value & (value - 1):
            raise FormatError(
                f"alignment {value!r} is not a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}",
                field="general.alignment",
                offset=self.alignment_pos,
            )
        return int(value)

    def read_tensors(self, alignment: int) -> dict[str, TensorInfo]:
        """All tensor descriptions, with offsets made absolute and checked."""
        found: dict[str, TensorInfo] = {}
        places: dict[str, int] = {}
        for index in range(self.num_tensors):
            start = self.pos
            info, offset_pos = self.tensor(index, alignment)
            if info.name in found:
                raise FormatError("two tensors have the same name", field=info.name, offset=start)
            found[info.name] = info
            places[info.name] = offset_pos
        self.data_offset = data = -(-self.pos // alignment) * alignment
        for name, info in found.items():
            end = data + info.offset + info.num_bytes
            if end > self.size:
                raise FormatError(
                    f"tensor data ends at byte {end}, past the end of the file at {self.size}: is the file complete?",
                    field=name,
                    offset=places[name],
                )
            found[name] = TensorInfo(name, info.format, info.shape, data + info.offset, info.num_bytes)
        check_no_overlap(found.values())
        return found

    def tensor(self, index: int, alignment: int) -> tuple[TensorInfo, int]:
        """One description; the offset is still relative to the data. Also where the offset field lies."""
        start = self.pos
        name = self.text(f"tensor {index} name", MAX_NAME_BYTES, is_strict=True)
        if not name:
            raise FormatError("a tensor name is empty", field=f"tensor {index} name", offset=start)
        num_dims = self.u32(name)
        if num_dims > MAX_DIMS:
            raise FormatError(f"{num_dims} dimensions; at most {MAX_DIMS}", field=name, offset=self.pos - 4)
        dims_pos = self.need(8 * num_dims, name)
        dims: tuple[int, ...] = struct.unpack_from(f"<{num_dims}Q", self.buffer, dims_pos)
        num_elements = 1
        for axis, dim in enumerate(dims):
            num_elements *= dim
            if dim == 0 or num_elements >= 1 << 63:
                what = "a dimension is 0" if dim == 0 else "the product of the dimensions passes 2^63"
                raise FormatError(f"{what}: {list(dims)}", field=name, offset=dims_pos + 8 * axis)
        kind = self.u32(name)
        form = BY_GGUF_TYPE.get(kind)
        if form is None:
            raise FormatError(f"tensor type {kind} is not known", field=name, offset=self.pos - 4)
        row = dims[0] if dims else 1
        if row % form.block_size:
            raise FormatError(
                f"rows of {row} elements do not divide into {form.name} blocks of {form.block_size}",
                field=name,
                offset=dims_pos,
            )
        offset = self.u64(name)
        if offset % alignment:
            raise FormatError(
                f"tensor offset {offset} is not a multiple of {alignment}", field=name, offset=self.pos - 8
            )
        num_bytes = num_elements // form.block_size * form.block_bytes
        return TensorInfo(name, form.name, dims[::-1], offset, num_bytes), self.pos - 8
