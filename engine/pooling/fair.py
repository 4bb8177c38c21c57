"""The queue of items of all waiting requests, in an order that is fair between requests.

Whoever has had the fewest tokens since it came goes next: of requests that wait together each gets the same share of the tokens,
a list of ten thousand texts no more than a single one, and whoever comes later begins level with those who are being served.
Among equals the older goes first; items of one request keep their order. Push and pop cost O(log requests).
Source: start-time fair queueing, Goyal, Vin & Cheng 1996.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.engine.messages import ItemOptions

Key = tuple[str, ItemOptions]


@dataclass(frozen=True, slots=True)
class Work:
    """One item: its tokens and what is asked of it. `segments` has a token type per token, or is empty, and so have
    `marks` (of `pooling.late`); `num_unseen` tokens at its end are not seen by the others."""

    request_id: str
    index: int
    task: str
    options: ItemOptions
    ids: list[int]
    num_prompt: int = 0
    segments: bytes = b""
    num_unseen: int = 0
    marks: bytes = b""

    @property
    def key(self) -> Key:
        """What items of one step have in common."""
        return self.task, self.options


@dataclass(slots=True)
class _Line:
    """What waits of one request. `served`: tokens it has had, on the clock that all requests share."""

    place: int
    served: int
    items: deque[Work] = field(default_factory=deque)
    is_whole: bool = False  # nothing more of it will come


class FairQueue:
    """`num_items` and `num_tokens` wait."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        #: by key, of every line with items, once each: (served, place, request)
        self._heaps: dict[Key, list[tuple[int, int, str]]] = {}
        self._now = 0
        self._num_lines = 0
        self.num_items = 0
        self.num_tokens = 0

    @property
    def num_requests(self) -> int:
        """Requests that wait, or of which more is to come."""
        return len(self._lines)

    def push(self, request_id: str, items: Iterable[Work], *, is_last: bool = True) -> None:
        """Behind what the request has waiting; all its items have one key. `is_last`: nothing more of it will come."""
        line = self._lines.get(request_id)
        if line is None:
            line = self._lines[request_id] = _Line(self._num_lines, self._now)
            self._num_lines += 1
        line.is_whole = is_last
        was_empty = not line.items
        for item in items:
            line.items.append(item)
            self.num_items += 1
            self.num_tokens += len(item.ids)
        if was_empty and line.items:
            line.served = max(line.served, self._now)  # time without items is not saved up
            heap = self._heaps.setdefault(line.items[0].key, [])
            heapq.heappush(heap, (line.served, line.place, request_id))
        elif is_last and not line.items:
            del self._lines[request_id]

    def peek(self, key: Key | None = None) -> Work | None:
        """The next item; with `key` the next one of that."""
        heads = [head for head in map(self._head, list(self._heaps) if key is None else [key]) if head is not None]
        return self._lines[min(heads)[2]].items[0] if heads else None

    def pop(self, key: Key) -> Work:
        """Takes what `peek` showed, of that key."""
        heap = self._heaps[key]
        served, place, request_id = heapq.heappop(heap)
        line = self._lines[request_id]
        item = line.items.popleft()
        self._now = max(self._now, served)
        line.served = served + len(item.ids)
        self.num_items -= 1
        self.num_tokens -= len(item.ids)
        if line.items:
            heapq.heappush(heap, (line.served, place, request_id))
        elif line.is_whole:
            del self._lines[request_id]
        return item

    def _head(self, key: Key) -> tuple[int, int, str] | None:
        """What is next of a key; None, and the key forgotten, when nothing is."""
        heap = self._heaps.get(key, [])
        while heap:
            line = self._lines.get(heap[0][2])
            if line is not None and line.place == heap[0][1]:
                return heap[0]
            heapq.heappop(heap)  # of a request that has been dropped
        self._heaps.pop(key, None)
        return None

    def drop(self, request_id: str) -> list[Work]:
        """Forgets a request; what it had waiting."""
        line = self._lines.pop(request_id, None)
        if line is None:
            return []
        self.num_items -= len(line.items)
        self.num_tokens -= sum(len(item.ids) for item in line.items)
        return list(line.items)

    def drop_all(self) -> list[Work]:
        """Forgets everything; what was waiting, by request."""
        return [item for request_id in list(self._lines) for item in self.drop(request_id)]
