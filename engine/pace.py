"""How much of a prompt runs in a step, so that running streams get their next token in time.

A step with running streams may take `itl_s` seconds. Chunks of prompts get what the streams leave of that, in order; when a
chunk was cut, nobody behind it starts. Promises, each a test in tests/engine/test_pace.py:
  1. the first prompt advances in every step: by what fits, and by one token at the least, with as many more as a quarter of
     the time of that step holds
  2. a step without running streams is not limited
  3. a prompt's last token is never held back
The quarter goes on top of the first token, which reads all of the prompt's keys so far: more of them cost little beside it,
and a prompt that crawls makes streams wait longer, not shorter, for they grow all the while.
What a step takes is asked of `StepCost`; no clock is read, so the same costs give the same plans. Units: seconds, tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

SHARE = 1 / 4  # of a step with the streams and one token of a prompt, for more of its tokens


class StepCost(Protocol):
    """Predicts steps; `engine.cost.CostModel` is one. Work is opaque here."""

    def work(self, entries: Iterable[tuple[int, int, int]]) -> Any:
        """Counts entries: (tokens stored before, tokens to run, logits rows) each."""
        ...

    def add(self, work: Any, start: int, count: int, rows: int) -> None:
        """Counts one more."""
        ...

    def seconds(self, work: Any) -> float: ...
    def longest(
        self, work: Any, start: int, most: int, rows_each: int, within_s: float, *, is_sure: bool = True
    ) -> int:
        """Tokens from `start` on that fit beside `work` into `within_s`, 0 to `most`."""
        ...


class Pace:
    """The limit of one step after another: `begin`, then `limit` and `add` per entry, in the order of the plan."""

    def __init__(self, cost: StepCost, itl_s: float) -> None:
        if not itl_s > 0:
            raise ValueError(f"itl_s is {itl_s}; it must be above 0")
        self.itl_s = itl_s
        self.is_limiting = False  # the step being planned has running streams
        self._cost = cost
        self._work: Any = None
        self._streams: list[tuple[int, int, int]] = []
        self._has_chunk = self._is_cut = False

    def begin(self, streams: list[tuple[int, int, int]]) -> None:
        """A step begins with these entries of running streams."""
        self.is_limiting = bool(streams)
        self._has_chunk = self._is_cut = False
        if streams:
            self._streams = streams
            self._work = self._cost.work(streams)

    def limit(self, start: int, most: int, rows_each: int = 0) -> int:
        """Tokens, up to `most`, that a prompt computed up to `start` may run in this step."""
        if not self.is_limiting or most <= 1:
            return most
        if self._is_cut:
            return 0
        count = self._cost.longest(self._work, start, most, rows_each, self.itl_s)
        if count < most and not self._has_chunk:
            least_s = self._cost.seconds(self._cost.work([*self._streams, (start, 1, rows_each)])) * (1 + SHARE)
            least = self._cost.longest(self._work, start, most, rows_each, least_s, is_sure=False)
            count = max(count, least, 1)
        return count

    def may_begin(self, start: int, end: int) -> bool:
        """There is time for some token of a prompt of `end` tokens, `start` of which are there."""
        return self.limit(start, end - start) > 0

    def add(self, start: int, count: int, rows: int, *, is_cut: bool) -> None:
        """An entry is in the plan; `is_cut`: `limit` made it shorter."""
        if self.is_limiting:
            self._cost.add(self._work, start, count, rows)
            self._has_chunk = self._has_chunk or is_cut or count > 1
            self._is_cut = self._is_cut or is_cut
