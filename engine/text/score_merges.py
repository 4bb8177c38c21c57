"""SentencePiece's merges, recovered from a vocabulary and its scores.

SentencePiece stores no merges: joining any two pieces that make a third is allowed, higher score first. A vocabulary of
262,144 tokens has 1.6 million places to cut one, so they are tried in numpy: a token's parts are looked up by the hashes
of the text between two places, which come from running sums. Source: SentencePiece's BPE (Kudo and Richardson, 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.signedinteger[Any]]
Hashes = NDArray[np.uint64]

_NORMAL = 1
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SPARE_BITS = 4  # one key in sixteen slots or fewer


def merges_from_scores(tokens: Sequence[str], scores: NDArray[np.float64], types: Places) -> list[tuple[str, str]]:
    """Pairs in the order they apply. `scores` and `types`, one per token; equal scores in the order of ids.

    For one token the longer left part comes first, as in the published conversions. Only normal tokens take part or
    result from a merge.
    """
    normal = np.flatnonzero(types == _NORMAL)
    best_first = normal[np.argsort(-scores[normal], kind="stable")]
    texts = [
        tokens[i] for i in best_first[::-1].tolist()
    ]  # worst first, and turned round at the end: longer left parts
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    hashes = _TextHashes("".join(texts))
    table = _HashTable(hashes.between(starts, ends))

    owners = np.repeat(np.arange(len(texts)), lengths)
    cuts = np.flatnonzero(starts[owners] != np.arange(len(owners)))  # before every character but a token's first
    owners = owners[cuts]
    lefts = table.find(hashes.between(starts[owners], cuts))
    kept = np.flatnonzero(lefts >= 0)
    cuts, owners, lefts = cuts[kept], owners[kept], lefts[kept]
    rights = table.find(hashes.between(cuts, ends[owners]))
    kept = np.flatnonzero(rights >= 0)[::-1]
    # The strings themselves, not slices of them: a tenth of the time.
    return list(zip(_pick(texts, lefts[kept]), _pick(texts, rights[kept]), strict=True))


def _pick(texts: list[str], places: Places) -> Any:
    return map(texts.__getitem__, places.tolist())


class _TextHashes:
    """64-bit polynomial hashes of any part of a text. Different parts of a vocabulary share one by chance 1 in 10^7."""

    def __init__(self, text: str) -> None:
        chars = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        powers = _powers(_BASE, len(chars))
        self._sums = np.zeros(len(chars) + 1, np.uint64)
        np.cumsum(powers[:-1] * (chars + np.uint64(1)), out=self._sums[1:])
        self._inverse = _powers(pow(_BASE, -1, 1 << 64), len(chars))

    def between(self, starts: Places, ends: Places) -> Hashes:
        """Of text[start:end], element by element."""
        found: Hashes = (self._sums[ends] - self._sums[starts]) * self._inverse[starts] * _MIX
        return found


def _powers(base: int, count: int) -> Hashes:
    out = np.full(count + 1, base, np.uint64)
    out[0] = 1
    return np.cumprod(out, out=out)


class _HashTable:
    """Where hashes lie in `keys`: one slot per hash, and a sorted list of those whose slot another one took."""

    def __init__(self, keys: Hashes) -> None:
        self._keys = keys
        bits = max(len(keys).bit_length() + _SPARE_BITS, 1)
        self._shift = np.uint64(64 - bits)
        places = np.arange(len(keys), dtype=np.int32)
        slots = keys >> self._shift
        self._table = np.full(1 << bits, -1, np.int32)
        self._table[slots] = places
        lost = np.flatnonzero(self._table[slots] != places)
        self._lost = lost[np.argsort(keys[lost])]
        self._lost_keys = keys[self._lost]

    def find(self, wanted: Hashes) -> Places:
        """The place of each hash, -1 for none."""
        at: Places = self._table[wanted >> self._shift]
        other = np.flatnonzero((at >= 0) & (self._keys[at] != wanted))
        near = np.searchsorted(self._lost_keys, wanted[other])
        is_lost = near < len(self._lost)
        is_lost[is_lost] = self._lost_keys[near[is_lost]] == wanted[other][is_lost]
        at[other] = -1
        at[other[is_lost]] = self._lost[near[is_lost]]
        return at
