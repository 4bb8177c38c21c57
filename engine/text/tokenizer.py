"""The tokenizer of a model: text to ids and back, from a `tokenizer.json` folder or from GGUF metadata.

Wraps a `tokenizers` object. Two rules are kept here for every entry point:
- Control tokens: `parse_special=False` encodes a control token's spelling as ordinary text, and `encode_spans` does so
  for the spans a user wrote (guarded.py). User-defined added tokens stay ordinary vocabulary, save those a chat
  template writes itself (`protect_markup`), such as tool-call tags.
- BOS: chat prompts (`encode_spans`) begin with exactly one BOS where the model wants one, whether or not the template
  wrote it. Completion prompts (`encode`) are taken as given: the model's own special tokens are added when
  `add_special` is set, even if the text already spells one; `has_doubled_bos` lets the caller warn.

Ids are ints in [0, vocab_size). Invariant: `decode(ids)` is the UTF-8 text of the tokens' joined bytes, each broken
sequence shown as U+FFFD, so that it equals the joined output of the streaming detokenizer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import RequestError
from octavo.engine.text.gguf_excerpt import ExcerptVocabulary
from octavo.engine.text.guarded import GuardedEncoder
from octavo.engine.text.spans import Span, Trust
from octavo.engine.text.token_bytes import PLAIN, SENTENCEPIECE, TokenSpelling

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer as RustTokenizer

# Scripts, marks, digits, spaces and code: any wrong normalizer or split changes some id here.
_FINGERPRINT_TEXT = (
    "Hello  World's\t\tCAFÉ cafe\u0301 Kantō "
    "12345 3.14e-10 \u0663\u0664 Привет ΑΒΓ ς 漢字かなカナ 한국어 한\u1100\u1161 "
    "العَرَبِيَّة עִבְרִית हिन्दी ภาษาไทย ﬁ Ⅷ ½ ＡＢ １２ e\u0301\u0323 😀👩\u200d👩\u200d👧 "
    "if (x != 0) { return y->z; }\n\n\n   \r\n \u00a0\u3000<|x|> [Y] "
    "don't I'LL they'Re\u2019s end."
)
_CHARS_PER_TOKEN_GUESS = 8
_SLACK_TOKENS = 64


class Tokenizer:
    """One model's tokenizer. Safe to share between threads: encoding changes nothing but caches."""

    def __init__(
        self,
        rust: RustTokenizer | ExcerptVocabulary,
        *,
        bos_id: int | None = None,
        eos_ids: Sequence[int] = (),
        pad_id: int | None = None,
        unk_id: int | None = None,
        mask_id: int | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        """`rust`: a `tokenizers.Tokenizer` or what stands in for it; its post-processor says which special tokens
        surround a text."""
        self._vocabulary = rust
        if not isinstance(rust, ExcerptVocabulary):
            rust.no_truncation()
            rust.no_padding()
        added = rust.get_added_tokens_decoder()
        self._added = {i: entry.content for i, entry in added.items()}
        self._special = frozenset(i for i, entry in added.items() if entry.special)
        self._spelling = TokenSpelling(rust.decoder)
        self._bytes: dict[int, bytes] = {}
        self._markup: frozenset[int] = frozenset()
        self._guard: GuardedEncoder | None = None
        self._lock = threading.Lock()
        self.vocab_size: int = max(rust.get_vocab_size(with_added_tokens=True), max(self._added, default=-1) + 1)
        self.bos_id = bos_id
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(eos_ids))
        self.pad_id = pad_id
        self.unk_id = unk_id
        self.mask_id = mask_id
        self.chat_templates: dict[str, str] = dict(chat_templates or {})
        self._single = _surrounding(rust)
        self._pair: tuple[list[list[int]], list[list[int]]] | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """From `tokenizer.json` or the folder that holds it; reads its companions (tokenizer_config.json and
        others)."""
        from pathlib import Path

        from octavo.engine.text.json_tokenizer import load_json_tokenizer

        return load_json_tokenizer(Path(path))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], *, in_excerpts: bool = False) -> Tokenizer:
        """From a GGUF file's metadata mapping (`tokenizer.ggml.*` and `tokenizer.chat_template*`). `in_excerpts`: for
        who encodes a few short texts and would wait for a large vocabulary (gguf_excerpt.py)."""
        from octavo.engine.text.gguf_tokenizer import build_gguf_tokenizer

        built = build_gguf_tokenizer(metadata, in_excerpts=in_excerpts)
        return cls(
            built.rust,
            bos_id=built.bos_id,
            eos_ids=built.eos_ids,
            pad_id=built.pad_id,
            unk_id=built.unk_id,
            chat_templates=built.chat_templates,
        )

    @property
    def rust(self) -> RustTokenizer:
        """The whole `tokenizers.Tokenizer`."""
        return self._vocabulary.whole() if isinstance(self._vocabulary, ExcerptVocabulary) else self._vocabulary

    # Ids and tokens

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: never produced by user text, skipped by `decode(skip_special=True)`."""
        return self._special

    @property
    def adds_bos(self) -> bool:
        """Whether the model's prompts begin with BOS."""
        return self.bos_id is not None and self.bos_id in self._single[0]

    @property
    def surrounding(self) -> tuple[list[int], list[int]]:
        """Special ids that encoding puts before and after a text."""
        return list(self._single[0]), list(self._single[1])

    @property
    def pair_layout(self) -> tuple[list[list[int]], list[list[int]]]:
        """Special ids before, between and after two texts, and their type ids; a fourth list has the two texts' own types."""
        if self._pair is None:
            self._pair = _pair_layout(self.rust.encode("a", "a"))
        return self._pair

    @property
    def strips_first_space(self) -> bool:
        """Whether encoding puts a space before a text, which decoding a whole text takes off again."""
        return self._spelling.strips_first_space

    def token(self, token_id: int) -> str:
        """The vocabulary's spelling of an id ("" for an id in a gap); RequestError outside the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            raise RequestError(f"token id {token_id} is not in the vocabulary; allowed are 0 to {self.vocab_size - 1}")
        return self._vocabulary.id_to_token(token_id) or ""

    def token_id(self, text: str) -> int | None:
        """The id of a vocabulary entry by its spelling, or None."""
        return self._vocabulary.token_to_id(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes of a token, special ones included (their spelling in UTF-8); none for ids beyond the vocabulary, which
        heads with rows to spare can draw."""
        found = self._bytes.get(token_id)
        if found is None:
            content = self._added.get(token_id)
            if content is None:
                if token_id >= self.vocab_size:
                    return b""
                found = self._spelling.to_bytes(self.token(token_id))
            elif self._spelling.kind == SENTENCEPIECE and token_id not in self._special:
                found = content.replace("\u2581", " ").encode()
            else:
                found = content.encode()
            self._bytes[token_id] = found
        return found

    # Encoding

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False, max_tokens: int | None = None
    ) -> list[int]:
        """Ids of one text. `add_special` puts the model's BOS, EOS or [CLS], [SEP] around it; `parse_special` lets the
        text spell control tokens. With `max_tokens` a text that is longer may be encoded only so far as to show it:
        the result then has more than `max_tokens` ids, of which the first `max_tokens` are exact."""
        trust = Trust.TEMPLATE if parse_special else Trust.USER
        prefix, suffix = self._single if add_special else ([], [])
        if max_tokens is not None:
            num_chars = (max_tokens + _SLACK_TOKENS) * _CHARS_PER_TOKEN_GUESS
            while num_chars < len(text):
                ids = self._encode_guarded([(text[:num_chars], trust)])
                if len(ids) > max_tokens + _SLACK_TOKENS:
                    return [*prefix, *ids[:-_SLACK_TOKENS], *suffix]
                num_chars *= 4
        return [*prefix, *self._encode_guarded([(text, trust)]), *suffix]

    def encode_spans(self, spans: Sequence[Span], *, ensure_bos: bool = True) -> list[int]:
        """Ids of a rendered chat prompt. With `ensure_bos` a model that wants BOS gets exactly one."""
        ids = self._encode_guarded(spans)
        if ensure_bos and self.bos_id is not None and self.adds_bos and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        while self.has_doubled_bos(ids):
            del ids[0]
        return ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """(ids, type ids) of two texts with the model's special tokens around and between them, as cross-encoders
        want."""
        specials, types = self.pair_layout
        ids: list[int] = []
        type_ids: list[int] = []
        for place, text in enumerate((first, second, None)):
            ids += specials[place]
            type_ids += types[place]
            if text is not None:
                part = self.encode(text, add_special=False)
                ids += part
                type_ids += [types[3][place]] * len(part)
        return ids, type_ids

    def has_doubled_bos(self, ids: Sequence[int]) -> bool:
        """Whether a prompt begins with two BOS tokens."""
        return self.bos_id is not None and len(ids) > 1 and ids[0] == self.bos_id == ids[1]

    def protect_markup(self, template_source: str) -> None:
        """Guard the user-defined tokens that a chat template writes itself: user text may not spell them either."""
        markup = {
            i
            for i, content in self._added.items()
            if i not in self._special and not content.isspace() and not content.isalnum() and content in template_source
        }
        with self._lock:
            if markup - self._markup:
                self._markup |= markup
                self._guard = None

    def _encode_guarded(self, spans: Sequence[Span]) -> list[int]:
        guard = self._guard
        if guard is None:
            with self._lock:
                guard = self._guard = GuardedEncoder(self._vocabulary, self._special, self._markup, self.unk_id)
        try:
            return guard.encode(spans)
        except (UnicodeEncodeError, TypeError):  # lone surrogates, legal in JSON escapes, are no text
            cleaned = [
                (text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), trust) for text, trust in spans
            ]
            if cleaned == list(spans):
                raise
            return guard.encode(cleaned)

    # Decoding

    def decode(self, ids: Iterable[int], *, skip_special: bool = True, strip_first_space: bool | None = None) -> str:
        """The text of `ids`. `strip_first_space` (default: what the model's own decoder does) drops the space that
        encoding put before the text; pass False for text that continues another."""
        special = self._special if skip_special else frozenset()
        data = b"".join([self.token_bytes(i) for i in ids if i not in special])
        strip = self.strips_first_space if strip_first_space is None else strip_first_space
        if strip and data[:1] == b" ":
            data = data[1:]
        return data.decode("utf-8", "replace")

    def fingerprint(self) -> str:
        """16 hex digits that change with any difference in ids on a fixed mixed-script text, or in the vocabulary's
        size."""
        import hashlib

        ids = self.rust.encode(_FINGERPRINT_TEXT, add_special_tokens=False).ids
        text = f"{self.vocab_size}:{self._spelling.kind == PLAIN}:{','.join(map(str, ids))}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _surrounding(rust: RustTokenizer | ExcerptVocabulary) -> tuple[list[int], list[int]]:
    """Special ids before and after a text."""
    if isinstance(rust, ExcerptVocabulary):
        before, after = rust.affixes()
        return [*before], [*after]
    encoding = rust.encode("a")
    mask, ids = encoding.special_tokens_mask, encoding.ids
    inner = [place for place, special in enumerate(mask) if not special]
    if not inner:  # the sample has no token of its own in this vocabulary
        return list(ids), []
    return ids[: inner[0]], ids[inner[-1] + 1 :]


def _pair_layout(encoding: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Special ids [before, between, after] and their type ids, with the texts' own type ids as a fourth entry."""
    groups: list[list[int]] = [[], [], []]
    types: list[list[int]] = [[], [], [], [0, 0]]
    place = 0
    for token, kind, sequence in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if sequence is None:
            groups[place].append(token)
            types[place].append(kind)
        else:
            types[3][sequence] = kind
            place = sequence + 1
    return groups, types
