"""Time inside and outside the kernels' program is told apart, and what requests found cached is counted once each."""

from __future__ import annotations

import time
from typing import Any

import pytest
from benchmarks.prefix import Engine, Timed
from tests.engine.fake_executable import make_core


class Program:
    """Takes a hundredth of a second."""

    def __len__(self) -> int:
        return 7

    def run(self, *args: Any) -> None:
        assert args == ("team", "step", 0, 7)
        time.sleep(0.01)


def test_runs_of_the_program_are_added_up() -> None:
    timed = Timed(Program())
    for _ in range(2):
        timed.run("team", "step", 0, len(timed))
    assert 0.02 <= timed.seconds < 0.5


def test_tokens_found_cached_are_those_of_all_requests() -> None:
    engine = Engine.__new__(Engine)
    engine.core, engine.cached, engine.host, engine._count = make_core(), [], [], 0
    prefix = [5, 9, 3, 7, 7, 2, 8, 4]
    engine.run([[*prefix, 11]], 1)
    engine.run([[*prefix, 12], [*prefix, 13]], 2)
    assert engine.cached == [0.0, 16.0] and engine.host == []
    engine.core.scheduler.max_len = 20  # answers end before they have what was asked for
    with pytest.raises(RuntimeError, match="asked for 50 tokens, got 12"):
        engine.run([prefix], 50)
