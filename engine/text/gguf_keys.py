"""The `tokenizer.ggml.*` keys of a GGUF file, checked: token list, types, merges, special ids, flags, chat templates.

Arrays may be lists or array types with `tolist`. Every disagreement between keys is a ModelError naming the key.
Token types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
Source: the GGUF specification (ggml-org/ggml docs/gguf.md).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError
from octavo.engine.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from octavo.engine.text.score_merges import merges_from_scores

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as RustTokenizer

log = logging.getLogger(__name__)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # SentencePiece's visible space
# Raw-UTF-8 BPE with SentencePiece spaces, stored as model "gpt2" with explicit merges.
RAW_BPE = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})
# Byte-level models that end every text with a separator, as RoBERTa does.
_WITH_SEPARATOR = frozenset({"jina-v1-en", "jina-v2-code", "roberta-bpe"})
# Architectures whose files have RoBERTa's special tokens where the tokenizer is not word pieces.
_ROBERTA_LIKE = frozenset({"bert", "jina-bert-v2"})
# Control tokens that mark the end of a turn in chat models; generation ends at any of them.
_TURN_ENDS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<turn|>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<|end_of_text|>",
    }
    | {"<|return|>", "<|call|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<EOT>", "<|END_OF_TURN_TOKEN|>", "</s>"}
)


class TokenizerKeys:
    """The tokenizer keys of one file, checked. Tokens of a mapped file are decoded one by one until `texts` is asked for."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.model = str(metadata.get("tokenizer.ggml.model", ""))
        if "tokenizer.ggml.tokens" not in metadata:
            raise ModelError(
                "this GGUF file has no tokenizer (no tokenizer.ggml.tokens); give a file or folder that has one"
            )
        tokens = metadata["tokenizer.ggml.tokens"]
        self.tokens: Sequence[str] = tokens if isinstance(tokens, Sequence) else self.array("tokens")
        kinds = metadata.get("tokenizer.ggml.token_type", ())
        self.types: NDArray[np.signedinteger[Any]] = np.asarray(kinds if len(kinds) else [NORMAL] * len(self.tokens))
        if len(self.types) != len(self.tokens):
            raise ModelError(
                f"tokenizer.ggml.token_type has {len(self.types)} entries for {len(self.tokens)} tokens; damaged file"
            )
        self.pre = str(metadata.get("tokenizer.ggml.pre") or "default")
        self.bos_id = self.token_id("bos")
        if self.bos_id is None and self.model == "bert":
            self.bos_id = self.token_id("cls")

    def original(self) -> RustTokenizer | None:
        """The whole `tokenizer.json` that some writers embed, if it fits the token list; it needs no conversion."""
        text = self.metadata.get("tokenizer.huggingface.json")
        if not isinstance(text, str):
            return None
        from tokenizers import Tokenizer

        try:
            rust = Tokenizer.from_str(text)
        except Exception as error:
            log.warning(
                "the GGUF file's tokenizer.huggingface.json is not readable (%s); converting the token list", error
            )
            return None
        sample = range(0, len(self.tokens), max(1, len(self.tokens) // 64))
        is_same = self.model == "bert" or all(rust.id_to_token(i) == self.tokens[i] for i in sample)
        if not is_same or rust.get_vocab_size() > len(self.tokens):
            log.warning("the GGUF file's tokenizer.huggingface.json does not fit its token list; converting the list")
            return None
        return rust

    @cached_property
    def texts(self) -> list[str]:
        """All tokens."""
        return self.array("tokens")

    @cached_property
    def added(self) -> dict[int, AddedToken]:
        """Control tokens, which become special, and user-defined ones, which become plain added tokens; by id."""
        from tokenizers import AddedToken

        is_special = (self.types == CONTROL) | ((self.types == UNKNOWN) & (self.model != "gpt2"))
        special = set(np.flatnonzero(is_special).tolist())
        return {
            i: AddedToken(text, special=i in special, normalized=False)
            for i in np.flatnonzero(is_special | (self.types == USER_DEFINED)).tolist()
            if (text := self.tokens[i] if i in special else self.spelled(self.tokens[i]))
        }

    def spelled(self, text: str) -> str:
        """A token as its user wrote it: word pieces are stored with a mark in front of those that begin a word."""
        return text.removeprefix(SPACE) if self.model == "bert" else text

    @cached_property
    def family(self) -> PreTokenizer:
        """The pre-tokenizer family; only byte-level files name one."""
        if self.model != "gpt2" or self.pre in RAW_BPE:
            return PreTokenizer()
        if self.pre == "default":
            log.warning(
                "the GGUF file names no pre-tokenizer (tokenizer.ggml.pre); token ids may differ from the original"
            )
        family = PRE_TOKENIZERS.get(self.pre)
        if family is None:
            raise ModelError(
                f"tokenizer.ggml.pre is {self.pre!r}, which is not known; known are "
                f"{', '.join(sorted(PRE_TOKENIZERS))}; "
                "use a model folder with its tokenizer.json instead"
            )
        return family

    def array(self, name: str) -> list[Any]:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        if value is None:
            return []
        if isinstance(value, list):
            return value
        return cast("list[Any]", value.tolist() if hasattr(value, "tolist") else list(value))

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.metadata.get(f"tokenizer.ggml.{name}", default))

    def token_id(self, name: str) -> int | None:
        value = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is None or not 0 <= int(value) < len(self.tokens):
            return None  # writers store -1 or 2^32 - 1 for "none"
        return int(value)

    def unknown_id(self) -> int | None:
        """The unknown token, by its key; where a unigram file lacks that, by its type."""
        declared = self.token_id("unknown")
        if declared is not None or self.model != "t5":
            return declared
        typed = np.flatnonzero(self.types == UNKNOWN)
        return int(typed[0]) if len(typed) else None

    def separator_id(self) -> int | None:
        for name in ("seperator", "separator", "eos"):  # the first spelling is the specification's
            found = self.token_id(name)
            if found is not None:
                return found
        return None

    def affixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after a text, from the add_bos, add_eos and add_sep flags and each kind's default."""
        is_bert, is_llama = self.model == "bert", self.model == "llama"
        prefix = self.bos_id if self.flag("add_bos_token", is_bert or is_llama or self.family.add_bos) else None
        suffix = None
        if self.flag("add_sep_token", is_bert or self.pre in _WITH_SEPARATOR):
            suffix = self.separator_id()
        elif self.flag("add_eos_token", self.model == "t5"):
            suffix = self.token_id("eos")
        return tuple(i for i in (prefix,) if i is not None), tuple(i for i in (suffix,) if i is not None)

    def add_post_processor(self, rust: RustTokenizer) -> None:
        """Have the tokenizer put those ids around a text, and BERT's separator between two texts, RoBERTa's twice."""
        from tokenizers import processors

        prefix, suffix = self.affixes()
        if not prefix and not suffix:
            return
        # Names instead of spellings, so that no spelling can upset the template's little language.
        names = {index: f"S{index}" for index in (*prefix, *suffix)}
        before, after = [f"{names[i]}:0" for i in prefix], [f"{names[i]}:0" for i in suffix]
        second = "1" if self.model == "bert" else "0"
        is_roberta = self.model != "bert" and self.metadata.get("general.architecture") in _ROBERTA_LIKE
        between = [*after, *after] if is_roberta else after
        rust.post_processor = processors.TemplateProcessing(
            single=[*before, "$A:0", *after],
            pair=[*before, "$A:0", *between, f"$B:{second}", *(f"{names[i]}:{second}" for i in suffix)],
            special_tokens=[{"id": name, "ids": [i], "tokens": [self.tokens[i]]} for i, name in names.items()],
        )

    def eos_ids(self) -> tuple[int, ...]:
        """The declared end tokens, then every control token that ends a turn by its well-known spelling."""
        declared = [self.token_id(name) for name in ("eos", "eot", "eom")]
        known = [i for i, t in self.added.items() if t.special and t.content in _TURN_ENDS and i != self.bos_id]
        return tuple(dict.fromkeys(i for i in [*declared, *known] if i is not None))

    def chat_templates(self) -> dict[str, str]:
        prefix = "tokenizer.chat_template"
        found = {"default": str(self.metadata[prefix])} if self.metadata.get(prefix) else {}
        for key, value in self.metadata.items():
            if key.startswith(prefix + ".") and isinstance(value, str):
                found[key[len(prefix) + 1 :]] = value
        return found

    def vocab(self) -> dict[str, int]:
        vocab = dict(zip(self.texts, range(len(self.texts)), strict=True))
        if len(vocab) != len(self.texts):
            # A later duplicate would take the earlier token's id; the first one keeps its spelling, as in the
            # originals.
            vocab = {}
            for index, text in enumerate(self.texts):
                name = text if text not in vocab else f"{text}\ufffe{index}"
                vocab[name] = index
        return vocab

    def merges(self) -> list[tuple[str, str]]:
        """The merge list as pairs, recovered from the scores where SentencePiece's kind lacks it. A space inside a piece
        never occurs: byte-level pieces spell it as another letter."""
        lines = self.array("merges")
        if not lines and self.model == "llama":
            return merges_from_scores(self.texts, self.scores(), self.types)
        if not lines:
            raise ModelError(
                f"tokenizer.ggml.model is {self.model!r} but there is no tokenizer.ggml.merges; the file is damaged"
            )
        # One split of everything is three times as fast as one per line; lines with more or fewer spaces go the slow way.
        halves = "\n".join(lines).replace(" ", "\n").split("\n")
        if len(halves) == 2 * len(lines) and len(lines) == sum(map(str.count, lines, repeat(" "))):
            return list(zip(halves[::2], halves[1::2], strict=True))
        pairs = list(map(str.split, lines, repeat(" "), repeat(1)))
        return cast("list[tuple[str, str]]", list(map(tuple, pairs)))

    def scores(self) -> NDArray[np.float64]:
        """One number per token. ModelError if the counts differ."""
        scores = np.asarray(self.metadata.get("tokenizer.ggml.scores", ()), np.float64)
        if len(scores) != len(self.tokens):
            raise ModelError(
                f"tokenizer.ggml.scores has {len(scores)} entries for {len(self.tokens)} tokens; the file is damaged"
            )
        return scores

    def unk_token(self) -> str | None:
        index = self.token_id("unknown")
        return None if index is None else self.tokens[index]

    def add_tokens(self, rust: RustTokenizer) -> None:
        """Make control tokens special and user-defined tokens plain added tokens, in id order."""
        rust.add_special_tokens([token for token in self.added.values() if token.special])
        rust.add_tokens([token for token in self.added.values() if not token.special])
