"""String arrays are read exactly, whatever their lengths and bytes."""

from __future__ import annotations

import random
import struct
import time

import numpy as np
import pytest
from tests.engine.loading.raw_gguf import text

from octavo.engine.errors import FormatError
from octavo.engine.loading.string_array import StringArray, scan_strings


def _scan(strings: list[bytes], lead: bytes = b"", tail: bytes = b"") -> tuple[StringArray, int, bytes]:
    content = lead + b"".join(text(s) for s in strings) + tail
    view = np.frombuffer(content, np.uint8)
    array, end = scan_strings(view, content, len(lead), len(strings), "tokens")
    return array, end, content


def _pools(rng: random.Random) -> list[list[bytes]]:
    return [
        [b"abc", b"d", "é".encode()],
        [b"", b"a"],
        [b""],
        [b"\0\0\0\0\0\0\0\0", b"a\0\0\0\0\0\0\0", b"\x03\0\0\0\0\0\0\0abc"],
        [bytes(300), b"x" * 256, b"y" * 255, b"z" * 70_000, b"q"],
        [bytes([rng.randrange(128)]) * rng.randrange(40) for _ in range(50)],
    ]


@pytest.mark.parametrize("pool", range(6))
@pytest.mark.parametrize("count", [0, 1, 2, 70, 1500, 6000])
def test_every_kind_of_string_is_read_exactly(pool: int, count: int) -> None:
    rng = random.Random(pool * 100 + count)
    choices = _pools(rng)[pool]
    strings = [rng.choice(choices) for _ in range(min(count, 400 if pool == 4 else count))]
    array, end, content = _scan(strings, lead=b"\0\7" * 5, tail=b"\0" * 9)
    assert end == len(content) - 9
    assert [array.raw(i) for i in range(len(array))] == strings
    assert array.tolist() == [s.decode() for s in strings]


def test_mixed_lengths_switch_between_the_two_ways_of_reading() -> None:
    rng = random.Random(11)
    pools = _pools(rng)
    strings = []
    for _ in range(40):
        strings += [rng.choice(rng.choice(pools)) for _ in range(rng.choice([1, 50, 900]))]
    array, end, content = _scan(strings)
    assert end == len(content)
    assert [array.raw(i) for i in range(len(array))] == strings


def test_rare_odd_strings_among_usual_ones_are_read_exactly() -> None:
    """Few breaks: the chain is picked up again behind each, and must not skip to the next likely place."""
    rng = random.Random(12)
    odd = [b"", bytes(300), b"x" * 300, b"\0" * 9, b"y" * 256, b"z" * 100_000]
    strings = [rng.choice(odd) if i % 200 == 199 else f"tok{i}".encode() for i in range(20_000)]
    array, end, content = _scan(strings)
    assert end == len(content)
    assert [array.raw(i) for i in range(len(array))] == strings


def test_indexing_slicing_and_comparing() -> None:
    array, _, _ = _scan([b"a", b"bb", b"ccc"])
    assert (array[1], array[-1], array[1:], len(array), "bb" in array) == ("bb", "ccc", ["bb", "ccc"], 3, True)
    assert array == ["a", "bb", "ccc"] and array.index("ccc") == 2
    with pytest.raises(IndexError):
        array[3]
    array.tolist()
    assert (array[1], array[-2:]) == ("bb", ["bb", "ccc"])


def test_broken_utf8_names_entry_and_offset() -> None:
    array, _, content = _scan([b"ok", b"b\xffd", b"ok"])
    with pytest.raises(FormatError, match="entry 1") as caught:
        array.tolist()
    assert content[caught.value.offset] == 0xFF
    assert array.raw(1) == b"b\xffd" and array[2] == "ok"


@pytest.mark.parametrize("length", [4, 255, 256, 1 << 20, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("before", [0, 1, 2000])
def test_a_length_past_the_end_is_refused_at_its_place(length: int, before: int) -> None:
    content = text(b"abc") * before + struct.pack("<Q", length) + b"xyz"
    view = np.frombuffer(content, np.uint8)
    with pytest.raises(FormatError, match=str(length)) as caught:
        scan_strings(view, content, 0, before + 1, "tokens")
    assert caught.value.offset == 11 * before


def test_no_content_makes_reading_slower_than_linear() -> None:
    """Long strings, empty strings and false candidates all stay near the cost of a plain walk."""
    for strings in ([b"x" * 300] * 20_000, [b""] * 200_000, [b"ab\0\0\0\0\0\0\0"] * 200_000):
        content = b"".join(text(s) for s in strings)
        view = np.frombuffer(content, np.uint8)
        begin = time.process_time()
        scan_strings(view, content, 0, len(strings), "tokens")
        assert time.process_time() - begin < 2.0  # a window per string would take 15 s and more
