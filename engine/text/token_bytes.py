"""The raw bytes behind a token id.

How a vocabulary spells bytes is read from the tokenizer's decoder: the GPT-2 byte alphabet (`ByteLevel`), SentencePiece
(visible space, `<0xNN>` byte tokens), WordPiece (`##` continues a word) or plain text. Added tokens are always plain
text. The bytes of a sequence are the concatenation of its tokens' bytes; the first token's leading space is the
caller's concern.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

BYTE_LEVEL, SENTENCEPIECE, WORDPIECE, PLAIN = "byte_level", "sentencepiece", "wordpiece", "plain"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def byte_alphabet() -> dict[str, int]:
    """GPT-2's 256 printable stand-ins: {character: byte}. Printable Latin-1 stands for itself, the rest for U+0100
    on."""
    itself = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(itself)]
    table = {chr(b): b for b in itself}
    table.update({chr(0x100 + place): b for place, b in enumerate(others)})
    return table


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if not decoder:
        return []
    if decoder.get("type") == "Sequence":
        return [inner for step in decoder.get("decoders", []) for inner in _steps(step)]
    return [decoder]


class TokenSpelling:
    """How one vocabulary spells bytes. `strips_first_space`: a text's own first space is an artefact of encoding."""

    def __init__(self, decoder: Any) -> None:
        """`decoder`: the `tokenizers` decoder object, or None."""
        state = json.loads(decoder.__getstate__()) if decoder is not None else None
        steps = _steps(state)
        kinds = {step["type"] for step in steps}
        self.strips_first_space = False
        self.word_prefix = "##"
        if "ByteLevel" in kinds:
            self.kind = BYTE_LEVEL
        elif "WordPiece" in kinds:
            self.kind = WORDPIECE
            self.word_prefix = next(str(s.get("prefix", "##")) for s in steps if s["type"] == "WordPiece")
            self.strips_first_space = True
        elif kinds & {"Metaspace", "ByteFallback", "Replace"}:
            self.kind = SENTENCEPIECE
            self.strips_first_space = any(
                (s["type"] == "Metaspace" and s.get("prepend_scheme", "always") != "never")
                or (s["type"] == "Strip" and s.get("content") == " " and s.get("start", 0) > 0)
                for s in steps
            )
        else:
            self.kind = PLAIN

    def to_bytes(self, token: str) -> bytes:
        """The bytes of one vocabulary entry that is not an added token."""
        if self.kind == BYTE_LEVEL:
            table = byte_alphabet()
            try:
                return bytes([table[char] for char in token])
            except KeyError:
                return token.encode("utf-8", "surrogatepass")  # an entry outside the alphabet spells itself
        if self.kind == SENTENCEPIECE:
            match = _BYTE_TOKEN.fullmatch(token)
            if match:
                return bytes([int(match[1], 16)])
            return token.replace("\u2581", " ").encode("utf-8", "surrogatepass")
        if self.kind == WORDPIECE:
            text = token[len(self.word_prefix) :] if token.startswith(self.word_prefix) else " " + token
            return text.encode("utf-8")
        return token.encode("utf-8", "surrogatepass")
