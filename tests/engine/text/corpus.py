"""A deterministic mixed-script corpus for tokenizer comparisons: the same lines on every machine and Python version.

Uses only integer arithmetic of its own (no `random`, whose methods may change). Scripts, combining marks, joiners, digits in
several scripts, code, runs of white space, control characters, spellings of special tokens.
"""

# ruff: noqa: SIM905  (a word list reads better as words)
from __future__ import annotations

import hashlib
from collections.abc import Iterable

_WORDS = {
    "latin": "the quick brown fox jumps over lazy dog hello world it's don't I'LL we'Ve tokenizer Model LANGUAGE naïve".split(),
    "accent": "café cafe\u0301 Kantō Ångström A\u030angstro\u0308m façade São Łódź İstanbul ﬁn ß ẞ o\u0302\u0301".split(),
    "cyrillic": "Привет мир язык модель ёлка й и\u0306 Україна ЖЖЖ".split(),
    "greek": "Καλημέρα κόσμε ΑΒΓ ς σ ώ ω\u0301 λόγος".split(),
    "cjk": "漢字 中文 模型 语言模型 龍 𠀀𠀁 你好，世界 。".split(),
    "kana": "ひらがな カタカナ ｶﾀｶﾅ が か\u3099 パ ー".split(),
    "hangul": "한국어 모델 한\u1100\u1161 안녕하세요 ㄱㄴ".split(),
    "arabic": "مرحبا العَرَبِيَّة لغة ١٢٣ سلام".split(),
    "hebrew": "שלום עִבְרִית מודל".split(),
    "devanagari": "नमस्ते हिन्दी भाषा क्षत्रिय १२३".split(),
    "thai": "สวัสดี ภาษาไทย ก็ น้ำ".split(),
    "emoji": "😀 👩\u200d👩\u200d👧\u200d👦 👍🏽 🇫🇷 ❤\ufe0f 1\ufe0f\u20e3 🏴\U000e0067\U000e0062\U000e007f".split(),
    "digits": "0 7 42 123 1234 12345 1234567890 3.14 1e-10 0xFF 1,000,000 2024-01-31 ½ Ⅷ ² １２".split(),
    "code": 'if(x!=0){ return y->z; } def f(a, b=1): foo_bar __init__ camelCase a[i]+=1; // # <tag/> \\n "q" `c` && ||'.split(
        " "
    ),
    "space": ["  ", "   ", "\t", "\t\t", "\u00a0", "\u3000", "\u200b", " \n", "\n\n", "\r\n", "        ", "\u2028"],
    "control": ["\x00", "\x01", "\x1b[0m", "\x7f", "\ufeff", "\ufffd", "\u202e", "\ue000", "\U0010ffff", "\x85"],
    "symbol": "! ? ... — – “x” ‘y’ € £ § © ™ ± × ≠ ∑ → ░ ▁ ▁▁ $ + < = > ^ ~ | ¡ ¿".split(),
}
_NAMES = sorted(_WORDS)
_JOINS = [" ", " ", " ", "", "", "  ", "\n", "-", "'", "."]


class Numbers:
    """A small deterministic generator (SplitMix64)."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) % limit

    def choice(self, items: list[str]) -> str:
        return items[self.below(len(items))]


def make_lines(count: int, seed: int = 1, *, without: Iterable[str] = ()) -> list[str]:
    """`count` lines; `without` leaves out word classes by name."""
    numbers = Numbers(seed)
    names = [name for name in _NAMES if name not in set(without)]
    lines = []
    for _ in range(count):
        main = numbers.choice(names)
        parts = []
        for _ in range(1 + numbers.below(10)):
            name = main if numbers.below(3) else numbers.choice(names)
            parts.append(numbers.choice(_WORDS[name]) + numbers.choice(_JOINS))
        lines.append("".join(parts))
    return lines


def digests(ids_per_line: Iterable[list[int]], lines_per_digest: int = 100) -> list[str]:
    """8 hex digits for every `lines_per_digest` lines of ids."""
    result, state, count = [], hashlib.blake2b(digest_size=4), 0
    for ids in ids_per_line:
        state.update((",".join(map(str, ids)) + ";").encode())
        count += 1
        if count == lines_per_digest:
            result.append(state.hexdigest())
            state, count = hashlib.blake2b(digest_size=4), 0
    if count:
        result.append(state.hexdigest())
    return result
