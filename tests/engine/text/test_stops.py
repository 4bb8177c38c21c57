"""Stop strings never leak, never swallow, and do not depend on how the text is cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.errors import RequestError
from octavo.engine.text.stops import MAX_STOPS, StopMachine, compile_stops


def _run(stops: list[str], pieces: list[str], *, include: bool = False) -> tuple[list[str], str | None]:
    machine = StopMachine(stops, include_stop=include)
    out = [machine.push(piece) for piece in pieces]
    out.append(machine.flush())
    return out, machine.match.stop if machine.match else None


def _reference(stops: list[str], text: str, include: bool) -> tuple[str, str | None]:
    """By the rules: the match complete first, then the longest."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def test_stop_over_several_pieces_does_not_leak() -> None:
    pieces = ["abc", "DE", "F", "GH", "tail"]
    out, stop = _run(["DEFG"], pieces)
    assert out == ["abc", "", "", "", "", ""] and stop == "DEFG"
    out, stop = _run(["DEFX"], pieces)
    assert "".join(out) == "abcDEFGHtail" and stop is None
    assert out[1:3] == ["", ""]  # held only while it could still become the stop
    assert "".join(_run(["DEFG"], pieces, include=True)[0]) == "abcDEFG"


def test_only_the_possible_suffix_is_held() -> None:
    machine = StopMachine(["</answer>"])
    assert machine.push("text </ans") == "text " and machine.held == "</ans"
    assert machine.push("<") == "</ans" and machine.held == "<"
    assert machine.flush() == "<"


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6),
    st.text("abc", max_size=30),
    st.lists(st.integers(0, 5), max_size=12),
    st.booleans(),
)
def test_any_cutting_gives_the_same_text(stops: list[str], text: str, cuts: list[int], include: bool) -> None:
    pieces, place = [], 0
    for cut in cuts:
        pieces.append(text[place : place + cut])
        place += cut
    pieces.append(text[place:])
    out, stop = _run(stops, pieces, include=include)
    assert ("".join(out), stop) == _reference(stops, text, include)


def test_match_position_counts_all_text() -> None:
    machine = StopMachine(["xyz"])
    for char in "abxxyz":
        machine.push(char)
    assert machine.match is not None and (machine.match.start, machine.match.end) == (3, 6)


def test_stop_before_min_tokens_is_text() -> None:
    machine = StopMachine(["END"])
    assert machine.push("xEND", is_armed=False) + machine.push("yEN", is_armed=False) == "xENDy"
    assert machine.push("D") == "" and machine.match is not None


def test_bad_stop_lists_are_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        compile_stops(("a", ""))
    with pytest.raises(RequestError, match=str(MAX_STOPS)):
        compile_stops(tuple(str(i) for i in range(MAX_STOPS + 1)))
    with pytest.raises(RequestError, match="characters"):
        compile_stops(("x" * 5000,))


def test_many_stops_cost_about_what_one_does() -> None:
    text = "lorem ipsum dolor sit amet " * 2000
    times = []
    for stops in (["stop000"], [f"stop{i:03}" for i in range(500)]):
        machine = StopMachine(stops)
        start = time.process_time()
        machine.push(text)
        times.append(time.process_time() - start)
    assert times[1] < 5 * times[0] + 0.01
