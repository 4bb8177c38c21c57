"""Streaming detokenizer: token ids in, whole characters out.

Works on bytes: each token's raw bytes pass through one incremental UTF-8 decoder, which keeps the start of an
unfinished character back until its last byte arrives. `flush` ends the text: what is still unfinished becomes one
U+FFFD.

Law (tested with random bytes): however the ids are cut into calls, the joined deltas plus `flush()` equal
`Tokenizer.decode` of all ids at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.text.tokenizer import Tokenizer

_NewDecoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """One text in the making. `num_chars` and `num_bytes` count what has been let out and what has been taken in."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, strip_first_space: bool = False) -> None:
        """`strip_first_space`: drop the space that SentencePiece puts before a text; only right for a text that does
        not continue a prompt, so the default keeps it."""
        self._token_bytes = tokenizer.token_bytes
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._decoder = _NewDecoder("replace")
        self._strips = strip_first_space and tokenizer.strips_first_space
        self.num_chars = 0
        self.num_bytes = 0

    def take(self, token_id: int) -> bytes:
        """The bytes that this token, next in the text, adds to it: none for a skipped token or a stripped first space."""
        if token_id in self._skipped:
            return b""
        data = self._token_bytes(token_id)
        if self._strips and data:
            self._strips = False
            data = data.removeprefix(b" ")
        return data

    def push(self, token_ids: Iterable[int]) -> str:
        """The characters that these tokens complete (possibly none)."""
        return "".join([self.push_bytes(self.take(token_id)) for token_id in token_ids])

    def push_bytes(self, data: bytes) -> str:
        """Like `push`, for bytes that `take` gave."""
        if not data:
            return ""
        self.num_bytes += len(data)
        text = self._decoder.decode(data)
        self.num_chars += len(text)
        return text

    @property
    def num_held_bytes(self) -> int:
        """Bytes of an unfinished character that wait for the rest of it (0 to 3)."""
        return len(self._decoder.getstate()[0])

    def flush(self) -> str:
        """End of text: one U+FFFD if a character was left unfinished, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self.num_chars += len(text)
        return text
