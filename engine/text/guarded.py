"""Encode text of mixed origin so that control tokens come from trusted text alone.

Method. The ordinary tokenizer encodes the whole text first. Every markup id in the result is traced back to its
characters: if all of them lie in text trusted to spell it, and every spelling inside template text was found, the
result stands. So a prompt without forged spellings has exactly its ordinary ids, with no boundary where spans meet.

Otherwise a second tokenizer runs. It shares the model, normalizer and pre-tokenizer but knows no markup spelling: each
trusted occurrence is first replaced by an unguessable stand-in word, registered as an added token with the same
options and mapped back to the real id afterwards. Whatever spelling is left is plain text to it. A vocabulary may
still reach a control id through its own pieces (Unigram scores, whole-word lookups); such an id is broken up into
smaller pieces.

`encode_special_tokens` of the `tokenizers` library alone does not do: it is all or nothing for one text, leaves
non-special added tokens matched, and does not stop the vocabulary itself from producing a control id.

Invariant: decoding the ids gives the text that ordinary encoding and decoding would give.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from octavo.engine.errors import RequestError
from octavo.engine.text.gguf_excerpt import ExcerptVocabulary
from octavo.engine.text.spans import Span, Trust, merge_spans, spans_text

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as RustTokenizer


class GuardedEncoder:
    """Guards one tokenizer. `control` ids need TEMPLATE text, `markup` ids (a template's plain tags) TEMPLATE or
    MODEL."""

    def __init__(
        self,
        rust: RustTokenizer | ExcerptVocabulary,
        control: Iterable[int],
        markup: Iterable[int] = (),
        unk_id: int | None = None,
    ) -> None:
        self._rust = rust
        self._unk_id = unk_id
        self._added: dict[int, AddedToken] = rust.get_added_tokens_decoder()
        self._limit: dict[int, Trust] = dict.fromkeys(markup, Trust.MODEL) | dict.fromkeys(control, Trust.TEMPLATE)
        self._spelling = {i: self._added[i].content for i in self._limit if i in self._added}
        self._plain: _PlainTokenizer | None = None

    @cached_property
    def _spellings(self) -> _Spellings:
        return _Spellings({i: self._added[i] for i in self._spelling})

    def encode(self, spans: Sequence[Span]) -> list[int]:
        """Token ids of the joined spans, no special tokens around them."""
        spans = merge_spans(spans)
        text = spans_text(spans)
        encoding = self._rust.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if not self._limit or all(trust == Trust.TEMPLATE for _, trust in spans):
            return ids
        if self._is_honest(text, spans, encoding, ids):
            return ids
        if self._plain is None:
            whole = self._rust.whole() if isinstance(self._rust, ExcerptVocabulary) else self._rust
            self._plain = _PlainTokenizer(whole, self._added, self._limit, self._unk_id)
        return self._plain.encode(self._occurrences(spans))

    def _is_honest(self, text: str, spans: Sequence[Span], encoding: object, ids: list[int]) -> bool:
        starts = [0]
        for part, _ in spans:
            starts.append(starts[-1] + len(part))
        num_found = 0
        limit = self._limit
        for place, token in enumerate(ids):
            allowed = limit.get(token)
            if allowed is None:
                continue
            start, end = encoding.token_to_chars(place)  # type: ignore[attr-defined]
            if token == self._unk_id and self._spelling.get(token, "") not in text[start:end]:
                continue  # text the vocabulary lacks, not the spelling of the unknown token
            start, end = _content_range(text, start, end, self._spelling.get(token, ""))
            first, last = bisect_right(starts, start) - 1, bisect_right(starts, max(start, end - 1)) - 1
            worst = max(trust for _, trust in spans[first : last + 1])
            if worst > allowed:
                return False
            num_found += worst == Trust.TEMPLATE
        written = (part for part, trust in spans if trust == Trust.TEMPLATE)
        return num_found >= sum(1 for part in written for _ in self._spellings.find(part))

    def _occurrences(self, spans: Sequence[Span]) -> list[tuple[str, int | None]]:
        """The text cut at every markup spelling its span may write: (text, None) or (spelling, id)."""
        parts: list[tuple[str, int | None]] = []
        for text, trust in spans:
            done = 0
            for start, end, token in self._spellings.find(text):
                if trust <= self._limit[token]:
                    parts += [(text[done:start], None), (text[start:end], token)]
                    done = end
            parts.append((text[done:], None))
        return [(text, token) for text, token in parts if text]


class _Spellings:
    """Finds added tokens in a text: leftmost, then longest, as the `tokenizers` library matches them.

    By first character and length, because some vocabularies have thousands: one pattern of 6,400 alternatives takes 90 ms
    to compile and tries them all at every `<`.
    """

    def __init__(self, tokens: Mapping[int, AddedToken]) -> None:
        self._ids = {token.content: i for i, token in tokens.items() if token.content}
        self._words = {token.content for token in tokens.values() if token.single_word}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile(f"[{''.join(map(re.escape, lengths))}]" if lengths else "(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(start, end, id) of each."""
        place = 0
        while (match := self._first.search(text, place)) is not None:
            start = place = match.start()
            for length in self._lengths[match[0]]:
                spelling = text[start : start + length]
                token = self._ids.get(spelling)
                if token is not None:
                    place = start + length
                    if spelling not in self._words or _is_alone(text, start, place):
                        yield start, place, token
                    break
            else:
                place += 1


def _is_alone(text: str, start: int, end: int) -> bool:
    """Whether no word character touches text[start:end]."""
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in around)


def _content_range(text: str, start: int, end: int, spelling: str) -> tuple[int, int]:
    """The spelling itself within text[start:end], without white space that its strip options swallowed."""
    place = text.find(spelling, start, end) if spelling else -1
    return (start, end) if place < 0 else (place, place + len(spelling))


class _PlainTokenizer:
    """The same tokenizer without markup spellings, plus a stand-in word for each of them."""

    def __init__(
        self, rust: RustTokenizer, added: dict[int, AddedToken], limit: dict[int, Trust], unk_id: int | None
    ) -> None:
        from tokenizers import AddedToken, Tokenizer

        self._nonce = f"octavo{os.urandom(12).hex()}x"
        self._limit = limit
        self._unk_id = unk_id
        self._model = rust.model
        plain = Tokenizer(rust.model)  # shares the model: no copy of the vocabulary
        if rust.normalizer is not None:
            plain.normalizer = rust.normalizer
        if rust.pre_tokenizer is not None:
            plain.pre_tokenizer = rust.pre_tokenizer
        self._real_id: dict[int, int] = {}
        kept, stand_ins = [], []
        for token, entry in sorted(added.items()):
            if token in limit:
                options = {name: getattr(entry, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
                stand_ins.append((token, AddedToken(self._stand_in(token), special=False, **options)))
            else:
                kept.append((token, entry))
        plain.add_tokens([entry for _, entry in kept + stand_ins])
        for token, entry in kept + stand_ins:
            known = plain.token_to_id(entry.content)
            if known is not None:
                self._real_id[known] = token
        self._plain = plain

    def _stand_in(self, token: int) -> str:
        return f"{self._nonce}{token}z"

    def encode(self, parts: Sequence[tuple[str, int | None]]) -> list[int]:
        if any(token is None and self._nonce in text for text, token in parts):
            raise RequestError(
                "the text holds this process's private token stand-in; send other text", code="reserved_text"
            )
        text = "".join(part if token is None else self._stand_in(token) for part, token in parts)
        ids: list[int] = []
        for token in self._plain.encode(text, add_special_tokens=False).ids:
            real = self._real_id.get(token)
            if real is not None:
                ids.append(real)
            elif token in self._limit and token != self._unk_id:
                ids += self._broken_up(token)
            else:
                ids.append(token)
        return ids

    def _broken_up(self, token: int) -> list[int]:
        """The ids of a vocabulary entry's spelling, cut so that no markup id remains."""
        piece = self._model.id_to_token(token) or ""
        return self._tokenize(piece, token)

    def _tokenize(self, piece: str, banned: int) -> list[int]:
        ids: list[int] = []
        for cut in (piece[:1], piece[1:]) if len(piece) > 1 else (piece,):
            for part in self._model.tokenize(cut) if cut else []:
                if part.id in self._limit and part.id != banned and len(part.value) < len(piece):
                    ids += self._tokenize(part.value, part.id)
                elif part.id in self._limit:
                    continue  # a one-character control token: no smaller spelling exists, so it is dropped
                else:
                    ids.append(part.id)
        return ids
