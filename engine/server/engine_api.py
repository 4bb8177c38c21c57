"""What the server asks of an engine, as a Protocol: `octavo.engine.client.AsyncEngine` is one, the tests script another.

Invariants the server relies on: `submit` yields at most one output per engine step and ends after the output that has a
`finish_reason`; closing its iterator early aborts the request within two steps; unknown ids are ignored by `finish` and
`abort`; after the engine's death every open iterator raises EngineDeadError and `is_alive` is False.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Protocol

from octavo.engine.messages import AddItems, AddRequest, EngineInfo, ItemOutput, RequestOutput


class Items(Protocol):
    """Items of one request: `octavo.engine.client.ItemFlow` is one."""

    def send(self, message: AddItems) -> None:
        """Some of them, to the engine."""
        ...

    def put(self, outputs: list[ItemOutput]) -> None:
        """Results for `next`; none wakes it."""
        ...

    def fail(self, error: Exception) -> None:
        """`next` raises this."""
        ...

    async def next(self) -> list[ItemOutput]:
        """What has come since the last call; waits for something."""
        ...


class Engine(Protocol):
    """A running engine. Times in seconds."""

    @property
    def info(self) -> EngineInfo:
        """What the engine said of itself when it became ready."""
        ...

    @property
    def is_alive(self) -> bool:
        """False from the moment the engine's end was noticed."""
        ...

    def submit(self, request: AddRequest) -> AsyncIterator[RequestOutput]:
        """Outputs of one request. Raises RequestError when it is refused, EngineDeadError when the engine is gone."""
        ...

    def open_items(self, request_id: str) -> AbstractContextManager[Items]:
        """Items of one request, for an engine that gives vectors; what has no result at the end is aborted."""
        ...

    async def finish(self, request_id: str) -> None:
        """Ends a request as finished: its stop string was seen."""
        ...

    async def abort(self, request_id: str) -> None:
        """Ends a request nobody waits for."""
        ...

    async def stats(self) -> dict[str, float]:
        """Counters and gauges, named as in `octavo.engine.server.metrics.ENGINE_METRICS`."""
        ...

    async def drain(self, deadline_s: float) -> None:
        """Takes nothing new, finishes what runs, returns when all is finished or after `deadline_s`; what is not finished
        then ends with the reason "abort"."""
        ...

    async def close(self) -> None:
        """Ends the engine process."""
        ...
