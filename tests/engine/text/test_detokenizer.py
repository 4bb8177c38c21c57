"""Characters are never split, whatever the tokens and the calls."""

from __future__ import annotations

import functools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.text.vocabularies import sentencepiece_tokenizer
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Rust

from octavo.engine.text.detokenizer import Detokenizer
from octavo.engine.text.token_bytes import byte_alphabet
from octavo.engine.text.tokenizer import Tokenizer

_PIECES = [b"\xf0\x9f", b"\x8c\xb6", b" ok", "é".encode(), b"\xe2\x82", b"\xac\xff", b"\xac ", "漢字".encode()]


@functools.lru_cache(maxsize=1)
def bytes_tokenizer() -> Tokenizer:
    """256 single bytes, then `_PIECES`, then one control token."""
    letters = {byte: char for char, byte in byte_alphabet().items()}
    pieces = [bytes([b]) for b in range(256)] + _PIECES
    rust = Rust(models.BPE(vocab={"".join(letters[b] for b in piece): i for i, piece in enumerate(pieces)}, merges=[]))
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken("<|end|>", special=True)])
    return Tokenizer(rust)


def _ids(*pieces: bytes) -> list[int]:
    return [256 + _PIECES.index(piece) for piece in pieces]


def test_character_over_two_tokens_comes_whole() -> None:
    stream = Detokenizer(bytes_tokenizer())
    deltas = [stream.push([i]) for i in _ids(b"\xf0\x9f", b"\x8c\xb6", b" ok")]
    assert deltas == ["", "\U0001f336", " ok"]
    assert stream.flush() == ""


def test_unfinished_character_is_flushed_once() -> None:
    stream = Detokenizer(bytes_tokenizer())
    assert stream.push(_ids(b"\xf0\x9f")) == ""
    assert stream.num_held_bytes == 2
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_control_tokens_are_skipped_or_shown() -> None:
    end = bytes_tokenizer().token_id("<|end|>")
    assert end is not None
    assert Detokenizer(bytes_tokenizer()).push([104, end, 105]) == "hi"
    assert Detokenizer(bytes_tokenizer(), skip_special=False).push([104, end, 105]) == "h<|end|>i"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 264), max_size=40), st.lists(st.integers(0, 6), max_size=40), st.booleans())
def test_joined_deltas_equal_decoding_at_once(ids: list[int], cuts: list[int], skip: bool) -> None:
    tokenizer = bytes_tokenizer()
    stream = Detokenizer(tokenizer, skip_special=skip)
    deltas, place = [], 0
    for cut in cuts:
        deltas.append(stream.push(ids[place : place + cut]))
        place += cut
    deltas += [stream.push(ids[place:]), stream.flush()]
    whole = tokenizer.decode(ids, skip_special=skip)
    assert "".join(deltas) == whole
    assert stream.num_chars == len(whole)


def test_first_space_of_sentencepiece_is_kept_in_a_continuation_and_stripped_at_a_start() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer.encode("hello  world é", add_special=False)
    kept = Detokenizer(tokenizer)
    assert "".join([kept.push([i]) for i in ids]) + kept.flush() == " hello  world é"
    stripped = Detokenizer(tokenizer, strip_first_space=True)
    text = "".join([stripped.push([i]) for i in [1, *ids]]) + stripped.flush()
    assert text == "hello  world é" == tokenizer.decode([1, *ids])


def test_lone_first_space_is_stripped_once() -> None:
    tokenizer = sentencepiece_tokenizer()
    space = tokenizer.token_id("\u2581")
    assert space is not None
    stream = Detokenizer(tokenizer, strip_first_space=True)
    assert stream.push([space]) + stream.push([space]) + stream.push([space]) == tokenizer.decode([space] * 3) == "  "


def test_byte_fallback_tokens_make_characters() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = [tokenizer.token_id(f"<0x{b:02X}>") or 0 for b in "🌶".encode()]
    stream = Detokenizer(tokenizer)
    assert [stream.push([i]) for i in ids] == ["", "", "", "🌶"]
