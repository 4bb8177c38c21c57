"""A GGUF vocabulary that is not built until it is worth it: short texts are encoded by excerpts of it.

Building the tokenizer of a large vocabulary takes up to a second, most of it in hash tables of tokens and merges that one
prompt has no use for. Byte-pair encoding makes pieces that are parts of the text and nothing else, so the tokens that occur
in a text, with the merges among them, give the same ids as all of them. `ExcerptVocabulary` finds those in the mapped file,
makes a small tokenizer of them, and builds the whole one when texts are long, when short ones have added up, or when
`whole` is asked for.

Invariant: ids and offsets are those of the whole tokenizer, whichever encoded the text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octavo.engine.text.gguf_keys import TokenizerKeys
from octavo.engine.text.score_merges import merges_from_scores
from octavo.engine.text.string_index import StoredStrings, StringIndex

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as RustTokenizer

TOKENS_PER_CHAR = 32  # excerpts may encode one character for so many tokens of the vocabulary, then the whole is built
MIN_TEXT_SHARE = 16  # every text counts for at least this part of those characters
_BYTE_TOKENS = tuple(b"<0x%02X>" % byte for byte in range(256))
_NO_TEXT = b"\xff"  # occurs in no UTF-8

Build = Callable[[TokenizerKeys], "RustTokenizer"]


class ExcerptVocabulary:
    """Stands in for a `tokenizers.Tokenizer` where texts are encoded and ids spelled. Safe to share between threads."""

    def __init__(self, keys: TokenizerKeys, tokens: StoredStrings, build: Build) -> None:
        self._keys = keys
        self._tokens = tokens
        self._build = build
        self._index = StringIndex(tokens)
        lines = keys.metadata.get("tokenizer.ggml.merges")
        self._lines = lines if isinstance(lines, StoredStrings) else None
        self._line_index = None if self._lines is None else StringIndex(self._lines)
        unknown = keys.token_id("unknown")
        self._always = {*self._index.equal_to(_BYTE_TOKENS), *(() if unknown is None else (unknown,))}
        self._empty = self._excerpt([])
        self._chars_left = len(tokens) // TOKENS_PER_CHAR
        self._min_cost = self._chars_left // MIN_TEXT_SHARE
        self._whole: RustTokenizer | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, keys: TokenizerKeys, build: Build) -> ExcerptVocabulary | None:
        """None where the whole has to be built at once: kinds without merges, lists in memory, an added token that is
        spelled twice."""
        tokens, lines = (keys.metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
        if keys.model not in ("gpt2", "llama") or not isinstance(tokens, StoredStrings):
            return None
        if "tokenizer.huggingface.json" in keys.metadata or not isinstance(lines, StoredStrings | None):
            return None
        made = cls(keys, tokens, build)
        return made if made._index.is_unique([*keys.added]) else None

    def whole(self) -> RustTokenizer:
        """The whole tokenizer, built at the first call."""
        with self._lock:
            if self._whole is None:
                self._whole = self._build(self._keys)
            return self._whole

    # -- as `tokenizers.Tokenizer` has them ------------------------------------------------------------------------------
    @property
    def decoder(self) -> Any:
        return self._empty.decoder

    def affixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after a text."""
        return self._keys.affixes()

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self._tokens)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self._keys.added

    def id_to_token(self, token_id: int) -> str | None:
        return self._tokens[token_id] if 0 <= token_id < len(self._tokens) else None

    def token_to_id(self, text: str) -> int | None:
        return next(iter(self._index.equal_to([text.encode()])), None)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Any:
        rust = self._whole
        if rust is None:
            rust = self._excerpt_for(text) if self._takes(text) else self.whole()
        return rust.encode(text, add_special_tokens=add_special_tokens)

    # -- excerpts --------------------------------------------------------------------------------------------------------
    def _takes(self, text: str) -> bool:
        """Whether one more excerpt costs less than the whole would have."""
        with self._lock:
            self._chars_left -= max(len(text), self._min_cost)
            return self._chars_left >= 0

    def _excerpt_for(self, text: str) -> RustTokenizer:
        added = [i for i, token in self._keys.added.items() if token.content in text]
        pieces = _NO_TEXT.join(piece.encode() for piece in self._pieces(text, added))
        return self._excerpt(sorted(self._always.union(added, self._index.inside(pieces))))

    def _pieces(self, text: str, added: list[int]) -> set[str]:
        """What the vocabulary is asked to encode: the text split at added tokens, normalized and pre-tokenized."""
        from tokenizers import pre_tokenizers

        collector = _Collector()
        last = pre_tokenizers.PreTokenizer.custom(collector)
        rust = self._excerpt(sorted(self._always.union(added)))
        before = rust.pre_tokenizer
        rust.pre_tokenizer = last if before is None else pre_tokenizers.Sequence([before, last])
        rust.encode(text, add_special_tokens=False)
        return collector.pieces

    def _excerpt(self, ids: list[int]) -> RustTokenizer:
        return self._build(_Excerpt(self._keys, ids, self._pairs))

    def _pairs(self, parts: set[bytes]) -> list[tuple[str, str]] | None:
        """The file's merges among these tokens, in order; None if it has no merges."""
        if self._lines is None or self._line_index is None:
            return None
        wanted = [
            left + b" " + right
            for text in parts
            for cut in range(1, len(text))
            if (left := text[:cut]) in parts and (right := text[cut:]) in parts and b" " not in left
        ]
        halves = (self._lines[place].partition(" ") for place in self._line_index.equal_to(wanted))
        return [(left, right) for left, _, right in halves]


class _Collector:
    """A pre-tokenizer that keeps what those before it made."""

    def __init__(self) -> None:
        self.pieces: set[str] = set()

    def pre_tokenize(self, text: Any) -> None:
        self.pieces.update(piece for piece, _, _ in text.get_splits())


class _Excerpt(TokenizerKeys):
    """The keys of a file with some of its tokens (ascending `ids`, which stay the file's) and the merges among them."""

    def __init__(
        self, keys: TokenizerKeys, ids: list[int], pairs: Callable[[set[bytes]], list[tuple[str, str]] | None]
    ) -> None:
        vars(self).update(vars(keys), added={i: keys.added[i] for i in ids if i in keys.added})
        self._ids = ids
        self._pairs = pairs

    def vocab(self) -> dict[str, int]:
        vocab: dict[str, int] = {}
        for index in self._ids:
            vocab.setdefault(self.tokens[index], index)
        return vocab

    def merges(self) -> list[tuple[str, str]]:
        vocab = self.vocab()
        pairs = self._pairs({text.encode() for text in vocab})
        if pairs is not None:
            return pairs
        if self.model != "llama":
            return super().merges()  # which says what is missing
        return merges_from_scores([self.tokens[i] for i in self._ids], self.scores()[self._ids], self.types[self._ids])
