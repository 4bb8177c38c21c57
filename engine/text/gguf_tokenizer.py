"""Build a `tokenizers` tokenizer from the `tokenizer.ggml.*` keys of a GGUF file, id for id with the original one.

Objects are built in memory (`models.BPE(vocab=dict, merges=list)`); measured on two shared AMD cores that takes 65-80 ms
for SmolLM2 (49,152 tokens, 48,900 merges) and 0.7-0.8 s for Gemma 3 (262,144 tokens, 513,511 merges), where parsing the
same tokenizers as JSON takes 80-107 ms and 0.8-1.0 s, so nothing is cached on disk. What needs only a short text or two
takes a vocabulary in excerpts instead (gguf_excerpt.py).

Kinds (`tokenizer.ggml.model`): `gpt2` byte-level BPE (its pre-tokenizer by name, see pretokenizers.py), and BPE over
raw UTF-8 for `pre` gemma4; `llama` SentencePiece BPE, merges recovered from scores; `bert` WordPiece; `t5` Unigram.
Token types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.

Invariants: a token's id is its place in `tokenizer.ggml.tokens`; control tokens become special added tokens,
user-defined tokens plain added tokens, and neither is ever reachable through merges.
Sources: the GGUF specification (ggml-org/ggml docs/gguf.md); SentencePiece's BPE (Kudo and Richardson, 2018).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ModelError
from octavo.engine.text.gguf_excerpt import ExcerptVocabulary
from octavo.engine.text.gguf_keys import BYTE, NORMAL, RAW_BPE, SPACE, USER_DEFINED, TokenizerKeys

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer


@dataclass
class BuiltTokenizer:
    """A tokenizer and what the file says about its use. `num_tokens` counts the vocabulary, added tokens included."""

    rust: RustTokenizer | ExcerptVocabulary
    num_tokens: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    unk_id: int | None
    chat_templates: dict[str, str]


def build_gguf_tokenizer(metadata: Mapping[str, Any], *, in_excerpts: bool = False) -> BuiltTokenizer:
    """The tokenizer of a GGUF file. `metadata` maps keys to str, int, float, bool and lists (or arrays) of them.

    `in_excerpts`: the whole is built only once texts have made it worth it, where the kind allows that.
    Raises ModelError when keys are missing or disagree, or the kind or pre-tokenizer is not known.
    """
    reader = TokenizerKeys(metadata)
    rust = ExcerptVocabulary.of(reader, _convert) if in_excerpts else None
    return BuiltTokenizer(
        rust=rust or reader.original() or _convert(reader),
        num_tokens=len(reader.tokens),
        bos_id=reader.bos_id,
        eos_ids=reader.eos_ids(),
        pad_id=reader.token_id("padding"),
        unk_id=reader.unknown_id(),
        chat_templates=reader.chat_templates(),
    )


def _convert(reader: TokenizerKeys) -> RustTokenizer:
    if reader.model not in _BUILDERS:
        raise ModelError(
            f"tokenizer.ggml.model is {reader.model!r}; known are {', '.join(_BUILDERS)}; "
            "use a model folder with its tokenizer.json instead"
        )
    # Hundreds of thousands of live tuples would set the cyclic collector off again and again, for nothing.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        rust = _BUILDERS[reader.model](reader)
    finally:
        if is_collecting:
            gc.enable()
    reader.add_tokens(rust)
    reader.add_post_processor(rust)
    return rust


def _build_gpt2(reader: TokenizerKeys) -> RustTokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    if reader.pre in RAW_BPE:
        return _sentencepiece_bpe(
            reader, reader.vocab(), reader.merges(), has_prefix=reader.flag("add_space_prefix", False)
        )
    family = reader.family
    vocab, merges = reader.vocab(), reader.merges()
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=family.ignore_merges)
    except Exception as error:
        raise ModelError(
            f"tokenizer.ggml.merges does not fit tokenizer.ggml.tokens: {error}; the file is damaged"
        ) from error
    rust = Tokenizer(model)
    if family.normalizer == "NFC":
        rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = family.build()
    rust.decoder = decoders.ByteLevel()
    return rust


def _build_llama(reader: TokenizerKeys) -> RustTokenizer:
    return _sentencepiece_bpe(reader, reader.vocab(), reader.merges(), has_prefix=reader.flag("add_space_prefix", True))


def _sentencepiece_bpe(
    reader: TokenizerKeys, vocab: dict[str, int], merges: list[tuple[str, str]], *, has_prefix: bool
) -> RustTokenizer:
    from tokenizers import Tokenizer, models, normalizers

    has_bytes = "<0x00>" in vocab
    rust = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token=reader.unk_token(), fuse_unk=True, byte_fallback=has_bytes)
    )
    spaces: list[Any] = [normalizers.Replace(" ", SPACE)]
    if has_prefix:
        spaces.insert(0, normalizers.Prepend(SPACE))
    rust.normalizer = normalizers.Sequence(spaces)
    rust.decoder = _space_decoder(has_prefix)
    return rust


def _space_decoder(has_prefix: bool) -> Any:
    from tokenizers import decoders

    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    return decoders.Sequence(steps)


def _build_bert(reader: TokenizerKeys) -> RustTokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    # GGUF marks the start of words instead of their continuation.
    vocab: dict[str, int] = {}
    for index, (text, kind) in enumerate(zip(reader.texts, reader.types.tolist(), strict=True)):
        if kind == NORMAL and not (text.startswith("[") and text.endswith("]")):
            text = text[1:] if text.startswith(SPACE) else "##" + text
        elif kind == USER_DEFINED:
            text = reader.spelled(text)
        vocab.setdefault(text, index)
    is_lower = reader.flag("normalizer.lowercase", all(text == text.lower() for text in vocab if text[:1] != "["))
    unk = reader.unk_token() or "[UNK]"
    rust = Tokenizer(models.WordPiece(vocab=vocab, unk_token=unk, max_input_chars_per_word=100))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=is_lower
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return rust


def _build_t5(reader: TokenizerKeys) -> RustTokenizer:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    pieces = list(zip(reader.vocab(), reader.scores().tolist(), strict=True))
    has_bytes = BYTE in reader.types
    rust = Tokenizer(models.Unigram(pieces, unk_id=reader.unknown_id() or 0, byte_fallback=has_bytes))
    steps: list[Any] = []
    charsmap = reader.array("precompiled_charsmap")
    if charsmap:
        steps.append(normalizers.Precompiled(bytes(int(x) & 0xFF for x in charsmap)))
    has_prefix = reader.flag("add_space_prefix", True)
    scheme = "always" if has_prefix else "never"
    if reader.flag("remove_extra_whitespaces", False):
        steps += [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)]
    elif has_prefix:
        # `Metaspace` puts no space before a text that begins with one; SentencePiece does.
        steps += [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        scheme = "never"
    if steps:
        rust.normalizer = normalizers.Sequence(steps)
    rust.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    rust.decoder = _space_decoder(has_prefix)
    return rust


_BUILDERS: dict[str, Callable[[TokenizerKeys], RustTokenizer]] = {
    "gpt2": _build_gpt2,
    "llama": _build_llama,
    "bert": _build_bert,
    "t5": _build_t5,
}
