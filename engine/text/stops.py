"""Stop strings on a stream of characters.

One Aho-Corasick automaton over all stop strings (Aho and Corasick, 1975), one dictionary step per character, so
several hundred stops cost what one does. Only the longest suffix of the text that can still become a stop string is
held back.

Rules, the same for every way of cutting the text into pieces:
1. The match that is complete first wins; of several complete at the same character, the longest (it begins first).
2. Text before the match is emitted; the match itself only with `include_stop`; nothing after it.
3. While not armed (`min_tokens`), a completed match is let through as ordinary text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from octavo.engine.errors import RequestError

MAX_STOPS = 512
MAX_STOP_CHARS = 4096  # all stop strings of a request together


class StopAutomaton:
    """The compiled stop strings; immutable, shared by all requests that use the same ones."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises RequestError for an empty stop string or too many."""
        stops = list(dict.fromkeys(stops))
        if len(stops) > MAX_STOPS:
            raise RequestError(f"{len(stops)} stop strings; at most {MAX_STOPS} are allowed", param="stop")
        if sum(map(len, stops)) > MAX_STOP_CHARS:
            raise RequestError(
                f"the stop strings hold {sum(map(len, stops))} characters; at most {MAX_STOP_CHARS} are allowed",
                param="stop",
            )
        if not all(stops):
            raise RequestError("a stop string is empty; leave it out", param="stop")
        self.stops = tuple(stops)
        self.steps: list[dict[str, int]] = [{}]  # trie edges, by state
        self.depth: list[int] = [0]
        self.ends: list[int] = [-1]  # the longest stop that ends in this state, or -1
        for place, stop in enumerate(stops):
            state = 0
            for char in stop:
                following = self.steps[state].get(char)
                if following is None:
                    following = len(self.steps)
                    self.steps[state][char] = following
                    self.steps.append({})
                    self.depth.append(self.depth[state] + 1)
                    self.ends.append(-1)
                state = following
            self.ends[state] = place
        self.fail = self._failure_links()

    def _failure_links(self) -> list[int]:
        fail = [0] * len(self.steps)
        queue = deque(self.steps[0].values())
        while queue:
            state = queue.popleft()
            if self.ends[state] < 0:  # its suffixes are shorter: a stop of its own is the longest
                self.ends[state] = self.ends[fail[state]]
            for char, following in self.steps[state].items():
                link = fail[state]
                while link and char not in self.steps[link]:
                    link = fail[link]
                fail[following] = self.steps[link].get(char, 0)
                queue.append(following)
        return fail


@lru_cache(maxsize=256)
def compile_stops(stops: tuple[str, ...]) -> StopAutomaton:
    """The automaton for these stop strings, remembered."""
    return StopAutomaton(stops)


@dataclass(frozen=True)
class StopMatch:
    """A completed stop. `end` counts characters of all text pushed so far, the match included."""

    stop: str
    start: int
    end: int


class StopMachine:
    """One request's stream. After a match nothing more comes out."""

    def __init__(self, stops: Sequence[str] | StopAutomaton, *, include_stop: bool = False) -> None:
        self._automaton = stops if isinstance(stops, StopAutomaton) else compile_stops(tuple(stops))
        self._include_stop = include_stop
        self._state = 0
        self._held = ""
        self._num_seen = 0
        self.match: StopMatch | None = None

    @property
    def held(self) -> str:
        """Text kept back because it may become a stop."""
        return self._held

    def push(self, text: str, *, is_armed: bool = True) -> str:
        """Text that may go out now. Sets `match` when a stop is complete and `is_armed`."""
        if self.match is not None or not text:
            return ""
        automaton = self._automaton
        steps, fail, ends = automaton.steps, automaton.fail, automaton.ends
        state = self._state
        for place, char in enumerate(text):
            while state and char not in steps[state]:
                state = fail[state]
            state = steps[state].get(char, 0)
            if ends[state] >= 0 and is_armed:
                return self._finish(text[: place + 1], automaton.stops[ends[state]])
        self._state = state
        self._num_seen += len(text)
        whole = self._held + text
        cut = len(whole) - automaton.depth[state]
        self._held = whole[cut:]
        return whole[:cut]

    def _finish(self, text: str, stop: str) -> str:
        self._num_seen += len(text)
        self.match = StopMatch(stop, self._num_seen - len(stop), self._num_seen)
        whole = self._held + text
        self._held = ""
        return whole if self._include_stop else whole[: len(whole) - len(stop)]

    def flush(self) -> str:
        """End of text: what was held back did not become a stop."""
        held, self._held = self._held, ""
        self._state = 0
        return held
