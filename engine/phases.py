"""Seconds of a start, by phase: start-up time is a promise (`EngineInfo.load_s`)."""

from __future__ import annotations

import time


class Phases:
    """Seconds by phase, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.perf_counter()

    def mark(self, name: str) -> None:
        """Ends the phase that ran until now."""
        now = time.perf_counter()
        self.seconds[name] = now - self._at
        self._at = now
