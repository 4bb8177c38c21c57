"""Admission by tokens and bytes: one call never takes all of it, what is done is given back, and the hint follows the pace."""

from __future__ import annotations

import pytest

from octavo.engine.errors import OverloadedError
from octavo.engine.server.held import Held


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_call_of_any_size_takes_half_at_most() -> None:
    held = Held(1000, 1 << 20)
    with held.admitted(10**9, 10**9), held.admitted(100, 100):
        assert held.tokens == 600
        with pytest.raises(OverloadedError, match="about 600 tokens"), held.admitted(10**9, 10):
            pass
    assert held.tokens == 0 and held.num_bytes == 0


def test_bytes_are_bounded_too() -> None:
    held = Held(1000, 1000)
    with (
        held.admitted(1, 500),
        held.admitted(1, 500),
        pytest.raises(OverloadedError, match="1000 bytes wait"),
        held.admitted(1, 1),
    ):
        pass


def test_results_give_back_their_share_and_the_rest_goes_with_the_call() -> None:
    held = Held(1000, 1000)
    with held.admitted(2000, 1) as place:
        place.done(1000)
        assert held.tokens == 250
        place.done(10**6)  # more than was guessed
        assert held.tokens == 0
    with pytest.raises(ValueError, match="broken"), held.admitted(100, 1):
        raise ValueError("broken")
    assert held.tokens == 0


def test_the_hint_is_half_of_what_is_held_at_the_pace_of_late() -> None:
    clock = Clock()
    held = Held(10_000, 1000, clock)
    assert held.retry_after_s() == 1.0
    clock.now = 100.0  # idle time is no pace
    with held.admitted(4000, 1) as place:
        for _ in range(20):
            clock.now += 1.0
            place.done(100)
        assert held.tokens == 2000 and 9.5 < held.retry_after_s() < 10.5
        with held.admitted(5000, 1):
            assert 30 < held.retry_after_s() < 40
