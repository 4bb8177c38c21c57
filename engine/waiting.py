"""The waiting queue and the policies that order it.

A policy is a function from a request to a tuple that never changes while the request lives; smaller goes first. It
orders everything: who is admitted next, who runs first in a step, who is preempted (the largest). Ageing therefore
costs nothing: with one priority class worth `ageing_s` seconds, `priority - waited / ageing_s` orders all requests
as `priority + arrival / ageing_s` does at every moment, so the key needs no clock after arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from octavo.engine.request import Request, Status

Policy = Callable[[Request], tuple[float, ...]]


def fcfs(request: Request) -> tuple[float, ...]:
    """First come, first served; requests of one moment in order of `add`."""
    return ()


def priority(ageing_s: float = 60.0) -> Policy:
    """Most urgent first (`priority`, lower is more urgent); `ageing_s` seconds of waiting outweigh one class."""
    if not ageing_s > 0:
        raise ValueError(f"ageing_s is {ageing_s}; it must be above 0")

    def key(request: Request) -> tuple[float, ...]:
        return (request.priority + (request.arrival_s or 0.0) / ageing_s,)

    return key


class WaitingQueue:
    """Requests by `order`, smallest first. Push and pop cost O(log n); leaving from the middle is O(1) and lazy."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], Request]] = []
        self._num_left = 0

    def __len__(self) -> int:
        return len(self._heap) - self._num_left

    def push(self, request: Request) -> None:
        """`request.order` must be unique, so that requests themselves are never compared."""
        heapq.heappush(self._heap, (request.order, request))

    def peek(self) -> Request | None:
        """The next request to admit."""
        heap = self._heap
        while heap:
            request = heap[0][1]
            if request.status is Status.WAITING:
                return request
            heapq.heappop(heap)
            self._num_left -= 1
        return None

    def pop(self) -> Request:
        """Take out what `peek` showed."""
        return heapq.heappop(self._heap)[1]

    def discard(self) -> None:
        """Some queued request has just been given another status than WAITING."""
        self._num_left += 1
        if self._num_left > 64 and self._num_left * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[1].status is Status.WAITING]
            heapq.heapify(self._heap)
            self._num_left = 0
