"""The text side of models that give a vector per token: markers, lengths and expansion of queries and documents, and which
tokens' vectors count; weights of entries from weights of tokens.

An item's marks say for each of its tokens what does not count: NO_VECTOR, NO_WEIGHT. Invariants: those of `texts`. Marker and
expansion are special tokens, which no text can spell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError
from octavo.engine.pooling.outputs import Late, Role
from octavo.engine.pooling.texts import Item, Rules, Texts, Truncation
from octavo.engine.text.tokenizer import Tokenizer
from octavo.platforms.types import F32, I32

if TYPE_CHECKING:
    from octavo.engine.pooling.token_runner import Made

NO_VECTOR, NO_WEIGHT = 1, 2


@dataclass(frozen=True)
class Sparse:
    """Weights above 0 by entry of the vocabulary: `ids` int32 ascending, `weights` float32 of the same length."""

    ids: I32
    weights: F32

    @classmethod
    def of(cls, entries: F32) -> Sparse:
        """Of a weight for every entry."""
        ids = np.flatnonzero(entries > 0).astype(np.int32)
        return cls(ids, np.ascontiguousarray(entries[ids]))

    @classmethod
    def of_tokens(cls, tokens: Sequence[int], weights: F32, left_out: frozenset[int]) -> Sparse:
        """The largest weight of each token, without those that are left out."""
        best: dict[int, np.float32] = {}
        for token, weight in zip(tokens, weights, strict=True):
            if token not in left_out and weight > best.get(token, np.float32(0)):
                best[token] = weight
        ids = sorted(best)
        return cls(np.array(ids, np.int32), np.array([best[token] for token in ids], np.float32))


class LateTexts:
    """Items of queries and documents. ModelError for a marker or an expansion that the tokenizer does not have."""

    def __init__(self, tokenizer: Tokenizer, rules: Rules, late: Late, vocab_size: int) -> None:
        self.late = late
        prefixes: Mapping[Role, str] = dict(late.prefixes)
        lengths: Mapping[Role, int] = dict(late.lengths)
        self._texts: dict[Role, Texts] = {}
        expansion = late.expansion
        self._filler = -1 if expansion is None else _filler(tokenizer, expansion.token)
        roles: tuple[Role, ...] = ("query", "document")
        for role in roles:
            most = min(lengths.get(role, rules.max_tokens), rules.max_tokens)
            if role == "query" and expansion is not None:
                floor = min(expansion.length, rules.max_tokens)
                most = floor if expansion.is_fixed else max(most, floor)
            marker = _marker(tokenizer, prefixes.get(role, ""))
            self._texts[role] = Texts(tokenizer, _bounded(rules, most), vocab_size, marker=marker)
        special = {tokenizer.token_id(word) for word in late.skip_words} - {None, tokenizer.unk_id}
        self._skipped = np.array(sorted(i for i in special if i is not None), np.int64)

    def item(self, text: object, role: Role, truncate: Truncation, prompt: str = "") -> Item:
        """A text's tokens with marker and expansion, or why it has none."""
        item, expansion = self._texts[role].item(text, prompt, truncate), self.late.expansion
        if item.error or role != "query" or expansion is None:
            return item
        count = max(0, min(expansion.length, self._texts[role].rules.max_tokens) - len(item.ids))
        return replace(item, ids=[*item.ids, *[self._filler] * count], num_unseen=0 if expansion.attends else count)

    def left_out(self, ids: Sequence[int], role: Role) -> NDArray[np.bool_]:
        """Which tokens' vectors do not count."""
        found = np.zeros(len(ids), bool)
        if self.late.skips_first:
            found[0] = True
        if role in self.late.skip_roles and len(self._skipped):
            found |= np.isin(np.asarray(ids), self._skipped)
        return found


class OutputTexts:
    """Items of a model that gives sparse vectors or a vector per token, with marks. `texts`: of its plain texts; `weighs_tokens`:
    whether sparse vectors are weights of a text's own tokens."""

    def __init__(self, texts: Texts, late: Late | None, *, weighs_tokens: bool) -> None:
        tokenizer = texts.tokenizer
        self.late = None if late is None else LateTexts(tokenizer, texts.rules, late, texts.vocab_size)
        #: whether queries and documents are treated differently, so that their markers are no prompts
        self.has_roles = late is not None and late.has_roles
        self._texts = texts
        special = (tokenizer.bos_id, *tokenizer.eos_ids, tokenizer.pad_id, tokenizer.unk_id) if weighs_tokens else ()
        self._unweighed = np.array([i for i in special if i is not None], np.int64)

    def item(self, text: object, role: Role, truncate: Truncation, prompt: str = "") -> Item:
        """A text's tokens and what of them does not count, or why it has none."""
        if self.late is not None and self.has_roles:
            item = self.late.item(text, role, truncate, prompt)
        else:
            item = self._texts.item(text, prompt, truncate)
        if item.error or (self.late is None and not len(self._unweighed)):
            return item
        marks = np.isin(np.asarray(item.ids), self._unweighed).astype(np.uint8) * NO_WEIGHT
        if self.late is not None:
            marks |= self.late.left_out(item.ids, role).astype(np.uint8) * NO_VECTOR
        return replace(item, marks=marks.tobytes())


def that_count(ids: Sequence[int], made: Made, marks: bytes) -> tuple[Sparse | None, F32 | None]:
    """(weights of entries, vectors of tokens) of what a text became, without those of NO_WEIGHT and NO_VECTOR; None for what
    was not asked for or is not finite."""
    sparse, vectors = None, made.vectors
    if made.entries is not None:
        sparse = Sparse.of(made.entries)
    elif made.weights is not None:
        marked = zip(ids, marks, strict=True) if marks else ()
        sparse = Sparse.of_tokens(ids, made.weights, frozenset(token for token, mark in marked if mark & NO_WEIGHT))
    if vectors is not None and marks:
        vectors = np.ascontiguousarray(vectors[np.frombuffer(marks, np.uint8) & NO_VECTOR == 0])
    return sparse, vectors


def _bounded(rules: Any, most: int) -> Any:
    """The same rules with another limit of tokens."""
    change = msgspec.structs.replace if isinstance(rules, msgspec.Struct) else replace
    return change(rules, max_tokens=most)


def max_sim(query: F32, document: F32) -> float:
    """How well a document's vectors answer a query's: the sum over the query's of the largest product."""
    return float((query @ document.T).max(axis=1).sum()) if len(document) else 0.0


def _marker(tokenizer: Tokenizer, prefix: str) -> list[int]:
    """A prefix as the tokens that it is: one entry of the vocabulary and text behind it, or text alone."""
    words = prefix.split(None, 1)
    if not words:
        return []
    for marker, rest in ((prefix, ""), (words[0], words[1] if len(words) > 1 else "")):
        found = tokenizer.token_id(marker)
        if found is not None:
            return [found, *(tokenizer.encode(rest, add_special=False) if rest else [])]
    return tokenizer.encode(prefix, add_special=False)


def _filler(tokenizer: Tokenizer, token: str | None) -> int:
    """What queries are expanded with."""
    found = tokenizer.mask_id if token is None else tokenizer.token_id(token)
    if found is None and token is None and tokenizer.eos_ids:
        found = tokenizer.eos_ids[0]
    if found is None:
        raise ModelError(
            f"queries are to be expanded with {token or 'the mask token'}, which the tokenizer does not have"
        )
    return found
