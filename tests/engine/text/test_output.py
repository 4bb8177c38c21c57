"""The text machine: streaming and one-shot answers are the same text, with exact offsets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.text.test_detokenizer import _ids, bytes_tokenizer

from octavo.engine.text.output import TextStream


def test_stop_over_token_borders_ends_the_stream() -> None:
    stream = TextStream(bytes_tokenizer(), stops=["DEFG"])
    deltas = [stream.push(list(piece)) for piece in (b"abc", b"DE", b"F", b"GH", b"tail")]
    assert [delta.text for delta in deltas] == ["abc", "", "", "", ""]
    assert [delta.finish for delta in deltas] == [None, None, None, "stop", None]
    assert [delta.num_tokens for delta in deltas] == [3, 2, 1, 1, 0]
    assert stream.flush().text == "" and stream.match is not None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.integers(97, 100), st.integers(240, 264)), max_size=30),
    st.lists(st.integers(0, 4), max_size=20),
    st.sampled_from([(), ("ab",), ("abc", "bc", "d"), ("é",), ("\ufffd",)]),
    st.booleans(),
)
def test_streamed_text_equals_one_shot_text(
    ids: list[int], cuts: list[int], stops: tuple[str, ...], include: bool
) -> None:
    def run(pieces: list[list[int]]) -> tuple[str, bool, int]:
        stream = TextStream(bytes_tokenizer(), stops=stops, include_stop=include)
        deltas = [stream.push(piece) for piece in pieces] + [stream.flush()]
        return "".join(d.text for d in deltas), any(d.finish for d in deltas), stream.num_tokens

    pieces, place = [], 0
    for cut in cuts:
        pieces.append(ids[place : place + cut])
        place += cut
    assert run([*pieces, ids[place:]]) == run([ids])


def test_flush_shows_a_broken_tail_once_and_may_complete_a_stop() -> None:
    stream = TextStream(bytes_tokenizer())
    assert stream.push(_ids(b"\xf0\x9f")).text == ""
    assert stream.flush().text == "\ufffd" and stream.flush().text == ""
    stopped = TextStream(bytes_tokenizer(), stops=["\ufffd"])
    stopped.push(_ids(b"\xf0\x9f"))
    assert stopped.flush().finish == "stop"


def test_token_texts_carry_exact_bytes_and_offsets() -> None:
    end = bytes_tokenizer().token_id("<|end|>")
    assert end is not None
    stream = TextStream(bytes_tokenizer(), with_tokens=True)
    ids = [97, *_ids(b"\xf0\x9f", b"\x8c\xb6", b" ok", "漢字".encode()), 98, end]
    tokens = [token for i in ids for token in stream.push([i]).tokens]
    assert [token.offset for token in tokens] == [0, 1, 1, 2, 5, 7, 8]
    assert b"".join(token.data for token in tokens[:-1]).decode() == "a\U0001f336 ok漢字b"
    assert tokens[1].text == "\ufffd" and tokens[-1].text == "<|end|>"


def test_min_tokens_disarms_stops() -> None:
    stream = TextStream(bytes_tokenizer(), stops=["b"], min_tokens=3)
    assert stream.push(list(b"ab")).finish is None
    delta = stream.push(list(b"bb"))
    assert delta.finish == "stop" and delta.num_tokens == 1 and stream.num_emitted_chars == 2
