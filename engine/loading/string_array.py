"""Length-prefixed string arrays of a GGUF header (vocabularies, merges: 50,000 to 500,000 strings) without a loop.

On file each string is an 8-byte little-endian length and its bytes, so where string i starts depends on all before.
Most lengths are below 256, which leaves seven zero bytes behind the low byte. `scan_strings` finds every such place of
a window with a few numpy passes, then *verifies* that each candidate's end is the next candidate's start; by induction
the chain that begins at the array's start is exact. Where the chain breaks (long strings, embedded zeros) it walks.

`StringArray` keeps offsets only and decodes on demand; `tolist` decodes everything in one pass. Offsets are bytes from
the file start. Invalid UTF-8 and ranges outside the file are FormatErrors naming field and offset.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import FormatError
from octavo.engine.loading.mapped import Bytes

Offsets: TypeAlias = npt.NDArray[np.int64]

_LENGTH = struct.Struct("<Q")
_WINDOW_BYTES = 1 << 18
_WALK_STRINGS = 1024  # strings walked one by one after a window gave nothing, so that its cost is spread
_MIN_GAIN = 64  # a window that yields fewer strings than this is followed by a walk


class StringArray(Sequence[str]):
    """A read-only sequence of str over a mapped header; `raw(i)` gives the stored bytes of one entry."""

    def __init__(self, view: Bytes, starts: Offsets, lengths: Offsets, field: str) -> None:
        self._view = view
        self._starts = starts
        self._lengths = lengths
        self._field = field
        self._decoded: list[str] | None = None

    def __len__(self) -> int:
        return len(self._starts)

    def raw(self, index: int) -> bytes:
        """The stored bytes of entry `index`."""
        start = int(self._starts[index])
        return self._view[start : start + int(self._lengths[index])].tobytes()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if self._decoded is not None:
            return self._decoded[index]
        if isinstance(index, slice):
            return [self._text(i) for i in range(*index.indices(len(self)))]
        return self._text(index)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return self.tolist() == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray({self._field!r}, {len(self)} strings)"

    def tolist(self) -> list[str]:
        """All entries, decoded once and remembered."""
        if self._decoded is None:
            self._decoded = self._decode_all()
        return self._decoded

    def stored(self) -> tuple[Bytes, Offsets, Offsets]:
        """(bytes, starts, lengths): entry i is bytes[starts[i] : starts[i] + lengths[i]], and eight bytes follow the last."""
        end = int(self._starts[-1] + self._lengths[-1]) if len(self) else 0
        view = self._view if end + 8 <= len(self._view) else np.append(self._view[:end], np.zeros(8, np.uint8))
        return view, self._starts, self._lengths

    def _text(self, index: int) -> str:
        try:
            return self.raw(index).decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"entry {index} is not valid UTF-8: {error.reason}",
                field=self._field,
                offset=int(self._starts[index]) + error.start,
            ) from None

    def _decode_all(self) -> list[str]:
        count = len(self)
        if count == 0:
            return []
        # The last byte of each length prefix (always zero) is kept as a separator, the other seven are dropped.
        begin = int(self._starts[0]) - 8
        region = self._view[begin : int(self._starts[-1] + self._lengths[-1])]
        keep = np.ones(len(region), np.bool_)
        prefix = self._starts - (begin + 8)
        for byte in range(7):
            keep[prefix + byte] = False
        try:
            parts = region[keep].tobytes().decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) == count + 1:
            return parts[1:]
        return [self._text(i) for i in range(count)]  # an entry holds NUL or broken UTF-8


def scan_strings(
    view: Bytes, buffer: mmap.mmap | bytes, offset: int, count: int, field: str
) -> tuple[StringArray, int]:
    """Read `count` strings at `offset`; returns them and the offset behind the last.

    The caller has checked that `count * 8` bytes remain in the file, which bounds what is allocated here.
    """
    starts = np.empty(count, np.int64)
    done = 0
    while done < count:
        taken, offset = _take_window(view, offset, starts[done:])
        done += taken
        if offset > len(view):
            raise _overrun(view, int(starts[done - 1]) - 8, field)
        if taken < _MIN_GAIN and done < count:
            taken, offset = _walk(view, buffer, offset, starts[done : done + _WALK_STRINGS], field)
            done += taken
    ends = np.empty(count, np.int64)
    ends[:-1] = starts[1:] - 8
    if count:
        ends[-1] = offset
    return StringArray(view, starts, ends - starts, field), offset


def _take_window(view: Bytes, base: int, out: Offsets) -> tuple[int, int]:
    """Fill `out` with string starts found in one window; returns (how many, offset behind them)."""
    window = view[base : base + _WINDOW_BYTES]
    zero = window == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    candidates = np.flatnonzero(four[:-3] & four[3:]) - 1  # a low length byte followed by seven zeros
    if len(candidates) and candidates[0] < 0:
        candidates = candidates[1:]
    if len(candidates) == 0 or candidates[0] != 0:
        return 0, base
    nexts = candidates + 8 + window[candidates]
    breaks = np.append(np.flatnonzero(nexts[:-1] != candidates[1:]), len(candidates) - 1)
    if len(breaks) * 16 > len(candidates) + 64:
        return 0, base  # not the common case: walking is faster
    taken, index = 0, 0
    while True:
        stop = int(breaks[np.searchsorted(breaks, index)]) + 1
        run = min(stop - index, len(out) - taken)
        out[taken : taken + run] = candidates[index : index + run] + (base + 8)
        taken += run
        end = int(nexts[index + run - 1])
        if taken == len(out):
            return taken, base + end
        index = int(np.searchsorted(candidates, end))
        if index == len(candidates) or candidates[index] != end:
            return taken, base + end


def _walk(view: Bytes, buffer: mmap.mmap | bytes, offset: int, out: Offsets, field: str) -> tuple[int, int]:
    """Fill `out` one string at a time."""
    size = len(view)
    unpack = _LENGTH.unpack_from
    for i in range(len(out)):
        if offset + 8 > size:
            raise FormatError("the file ends inside a string array", field=field, offset=offset)
        end = offset + 8 + unpack(buffer, offset)[0]
        if end > size:
            raise _overrun(view, offset, field)
        out[i] = offset + 8
        offset = end
    return len(out), offset


def _overrun(view: Bytes, offset: int, field: str) -> FormatError:
    (length,) = _LENGTH.unpack(view[offset : offset + 8].tobytes())
    return FormatError(
        f"a string of {length} bytes does not fit the {len(view) - offset - 8} bytes left in the file",
        field=field,
        offset=offset,
    )
