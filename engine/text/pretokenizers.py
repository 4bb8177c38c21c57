"""How GGUF's `tokenizer.ggml.pre` names split text before byte-level BPE, as `tokenizers` objects.

A GGUF file does not carry the pre-tokenizer of the original `tokenizer.json`; it carries a name for it. This table maps
each name back to the *original* components (normalizer, split patterns, digit rules), not to the approximations other
engines need for their regex engines. `tokenizers` matches patterns with Oniguruma, so they are written as published.

Invariants: every family ends in the GPT-2 byte alphabet (`ByteLevel`), so any input text is representable.
Sources: the `tokenizer.json` files of the model families named beside each pattern; names as in llama.cpp's
llama-vocab.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ASCII_PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
# Letters with case of the Unicode version DeepSeek's pattern was generated from.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_PUNCTUATION = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"

LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASED_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"{_CASED_WORDS % ('', '')}|\p{{N}}|{_CASED_TAIL}"
GPT4O = rf"{_CASED_WORDS % (_CONTRACTIONS + '?', _CONTRACTIONS + '?')}|\p{{N}}{{1,3}}|{_CASED_TAIL}"
DEEPSEEK3_MAIN = (
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED_CODER = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"

# A step is ("split", pattern), ("digits", individual) or ("punctuation", behaviour).
Step = tuple[Literal["split", "digits", "punctuation"], "str | bool"]


@dataclass(frozen=True)
class PreTokenizer:
    """One family. `is_gpt2_split`: `ByteLevel` splits with GPT-2's own pattern after `steps`; `steps_after` follow
    it."""

    steps: tuple[Step, ...] = ()
    is_gpt2_split: bool = False
    steps_after: tuple[Step, ...] = ()
    normalizer: Literal["NFC"] | None = None
    ignore_merges: bool = False
    add_bos: bool = False  # what the original does when the file does not say

    def build(self) -> Any:
        """The `tokenizers` pre-tokenizer (a `Sequence`, or `ByteLevel` alone)."""
        from tokenizers import pre_tokenizers

        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.is_gpt2_split)
        if not self.steps and not self.steps_after:
            return byte_level
        return pre_tokenizers.Sequence([*map(_build, self.steps), byte_level, *map(_build, self.steps_after)])


def _build(step: Step) -> Any:
    from tokenizers import Regex, pre_tokenizers

    kind, value = step
    if kind == "split":
        return pre_tokenizers.Split(Regex(str(value)), behavior="isolated", invert=False)
    if kind == "digits":
        return pre_tokenizers.Digits(individual_digits=bool(value))
    return pre_tokenizers.Punctuation(behavior=str(value))


def _one(pattern: str, **options: Any) -> PreTokenizer:
    return PreTokenizer(steps=(("split", pattern),), **options)


_GPT2 = PreTokenizer(is_gpt2_split=True)
_GPT2_NFC = PreTokenizer(is_gpt2_split=True, normalizer="NFC")
_DIGITS = PreTokenizer(steps=(("digits", True),), is_gpt2_split=True)
_DIGITS_NFC = PreTokenizer(steps=(("digits", True),), is_gpt2_split=True, normalizer="NFC")
_FALCON = PreTokenizer(
    steps=(("punctuation", "contiguous"),),
    is_gpt2_split=True,
    steps_after=(("digits", False), ("split", "[0-9][0-9][0-9]")),
)
_LLAMA3_BOS = _one(LLAMA3, ignore_merges=True, add_bos=True)
_DEEPSEEK3 = PreTokenizer(
    steps=(("split", r"\p{N}{1,3}"), ("split", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), ("split", DEEPSEEK3_MAIN))
)

_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (_FALCON, "default falcon"),
    (_GPT2, "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum jina-v1-en jina-v2-code"),
    (_GPT2, "roberta-bpe jais trillion granite-docling exaone4"),
    (_GPT2_NFC, "olmo mpt modern-bert"),
    (_DIGITS, "smollm starcoder refact codeshell exaone minerva-7b mellum2"),
    (_DIGITS_NFC, "command-r"),
    (_LLAMA3_BOS, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    (_one(LLAMA3, ignore_merges=True), "glm4 glm5"),
    (_one(LLAMA3), "chatglm-bpe dbrx smaug-bpe"),
    (_one(QWEN2, normalizer="NFC"), "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez"),
    (_one(QWEN2), "stablelm2 hunyuan solar-open grok-2"),
    (_one(QWEN35, normalizer="NFC"), "qwen35"),
    (_one(TEKKEN, ignore_merges=True, add_bos=True), "tekken"),
    (_one(GPT4O), "gpt-4o llama4 kanana2 minimax-m2 talkie"),
    (_DEEPSEEK3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (
        PreTokenizer(
            steps=(
                ("split", "[\r\n]"),
                ("split", rf"\s?[{_DEEPSEEK_LETTERS}]+"),
                ("split", _DEEPSEEK_PUNCTUATION),
                ("split", r"\s+$"),
                ("split", _DEEPSEEK_CJK),
                ("digits", True),
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizer(
            steps=(
                ("split", "[\r\n]"),
                ("split", r"\s?\p{L}+"),
                ("split", r"\s?\p{P}+"),
                ("split", _DEEPSEEK_CJK),
                ("digits", True),
            )
        ),
        "deepseek-coder",
    ),
    (_one(BAILING), "bailingmoe bailingmoe2 llada-moe"),
    (_one(SEED_CODER), "seed-coder"),
    (_one(BLOOM), "bloom poro-chat gpt3-finnish"),
    (PreTokenizer(steps=(("split", BLOOM), ("digits", True))), "viking"),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: family for family, names in _FAMILIES for name in names.split()}
