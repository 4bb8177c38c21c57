"""Entries of a string array are found by text, whatever their lengths and whatever else the array holds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.engine.loading.raw_gguf import text

from octavo.engine.loading.string_array import StringArray, scan_strings
from octavo.engine.text import string_index
from octavo.engine.text.string_index import StringIndex


def array_of(strings: list[bytes], tail: bytes = b"") -> StringArray:
    content = b"lead" + b"".join(map(text, strings)) + tail
    return scan_strings(np.frombuffer(content, np.uint8), content, 4, len(strings), "tokens")[0]


def random_strings(rng: random.Random, count: int) -> list[bytes]:
    # Few letters and shared beginnings and ends, so that many strings differ in the middle or in length alone.
    made = [bytes(rng.choice(b"ab") for _ in range(rng.randrange(12))) for _ in range(count)]
    return made + [b"beginning" + part + b"-the end." for part in made[:50]] + [b"", b"\0", b"\0\0", "é".encode()]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tail", [b"", b"tensor data behind the strings"])
def test_entries_equal_to_or_inside_a_text_are_those_that_python_finds(seed: int, tail: bytes) -> None:
    rng = random.Random(seed)
    strings = random_strings(rng, 400)
    index = StringIndex(array_of(strings, tail))
    wanted = {*rng.sample(strings, 30), b"beginningx-the end.", b"absent", b"a" * 40}
    assert index.equal_to(wanted) == [i for i, string in enumerate(strings) if string in wanted]
    for size in (0, 1, 5, 9, 60):
        body = bytes(rng.choice(b"ab") for _ in range(size)) + rng.choice(strings) + "é\0".encode() * (size % 2)
        assert index.inside(body) == [i for i, string in enumerate(strings) if string and string in body]


def test_a_long_text_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = [b"needle", b"x" * 3000, b"n", b"absent"]
    index = StringIndex(array_of(strings))
    monkeypatch.setattr(string_index, "_MAX_KEYS", 100)
    assert index.inside(b"y" * 900 + b"needle" + b"y" * 99) == [0, 2]


def test_keys_alone_never_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = random_strings(random.Random(9), 200)
    monkeypatch.setattr(string_index, "_keys", lambda data, starts, lengths: np.zeros(len(starts), np.uint64))
    index = StringIndex(array_of(strings))
    assert index.equal_to([b"ab", b"ba"]) == [i for i, string in enumerate(strings) if string in (b"ab", b"ba")]
    assert index.inside(b"abab") == [i for i, string in enumerate(strings) if string and string in b"abab"]


def test_repeats_are_seen() -> None:
    index = StringIndex(array_of([b"a", b"b", b"a", b"c", b"b"]))
    assert index.is_unique([3]) and index.is_unique([])
    assert not index.is_unique([0, 3]) and not index.is_unique([1, 4])


def test_an_empty_array_has_nothing() -> None:
    index = StringIndex(array_of([]))
    assert index.equal_to([b"", b"a"]) == index.inside(b"abc") == [] and index.is_unique([])
