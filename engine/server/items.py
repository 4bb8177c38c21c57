"""One call's items on their way through the engine: tokenized some at a time, sent, and taken as their results come.

Texts become tokens beside the engine's work, and only so far ahead of it as keeps it busy, so that a list of any length takes
little memory and what a call does is over soon after its client has gone. Each result is handed on at once: writing it down takes
a share of a millisecond then, not a second at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.engine.errors import OctavoError
from octavo.engine.messages import AddItems, ItemOptions, ItemOutput
from octavo.engine.pooling.texts import Item
from octavo.engine.server.held import Place
from octavo.engine.server.http import HttpError, unavailable
from octavo.engine.server.inputs import chars_of, weight_of
from octavo.engine.server.metrics import Metrics
from octavo.engine.server.state import Model

if TYPE_CHECKING:
    from octavo.engine.server.engine_api import Items

AHEAD_TOKENS = 1 << 14  # sent and without result, at most, before more is tokenized
CHUNK_CHARS = 1 << 15  # tokenized at a time
CHUNK_ITEMS = 256

Take = Callable[[int, ItemOutput], None]


class ItemsRun:
    """Items of one call. `make` turns inputs into tokens; `param` names the inputs in errors, with
    their places if there is a list of them, unless `where` says what an input is called.

    `num_tokens` went in, of all items; `truncated` has how many tokens cut ones have; `errors` why items have no result, with
    `keeps_errors`: else the first of them ends the call.
    """

    def __init__(
        self,
        model: Model,
        metrics: Metrics,
        request_id: str,
        inputs: Sequence[Any],
        make: Callable[[Sequence[Any]], list[Item]],
        *,
        task: str,
        options: ItemOptions,
        param: str,
        place: Place,
        is_list: bool = True,
        keeps_errors: bool = False,
        where: Callable[[int], str] | None = None,
    ) -> None:
        self._model, self._metrics, self._id = model, metrics, request_id
        self._inputs, self._make, self._place = inputs, make, place
        self._task, self._options, self._param = task, options, param
        self._is_list, self._keeps_errors, self._where = is_list, keeps_errors, where
        self.num_tokens = 0
        self.truncated: dict[int, int] = {}
        self.errors: dict[int, HttpError] = {}
        self._flow: Items | None = None
        self._num_left = len(inputs)
        self._num_ahead = 0
        self._lengths: dict[int, int] = {}  # tokens of items that are in the engine
        self._room = asyncio.Event()

    async def run(self, take: Take) -> None:
        """Hands every result to `take`, in any order. Raises the first error of the call, or of an item."""
        started = time.monotonic()
        outcome = "abort"
        try:
            with self._model.engine.open_items(self._id) as flow:
                self._flow = flow
                sent = await self._send_chunk(flow, 0)
                sender = asyncio.ensure_future(self._send_all(flow, sent)) if sent < len(self._inputs) else None
                try:
                    while self._num_left:
                        for output in await flow.next():
                            self._finish(output, take)
                finally:
                    if sender is not None:
                        sender.cancel()
                        await asyncio.gather(sender, return_exceptions=True)
            outcome = "stop"
        except OctavoError:
            outcome = "error"
            raise
        except asyncio.CancelledError:
            self._metrics.aborts["client_gone"] += 1
            raise
        finally:
            self._count(outcome, time.monotonic() - started)

    def end(self, error: OctavoError) -> None:
        """Ends the call from outside: `run` raises this."""
        if self._flow is not None:
            self._flow.fail(error)

    def _count(self, outcome: str, seconds: float) -> None:
        self._metrics.finished[outcome] += 1
        if outcome == "stop":
            self._metrics.prompt_tokens += self.num_tokens
            self._metrics.observe("e2e_request_latency_seconds", seconds)
            self._metrics.observe("request_prompt_tokens", self.num_tokens)

    async def _send_all(self, flow: Items, first: int) -> None:
        """Tokenizes and sends from item `first` on, chunk by chunk; what goes wrong is the call's."""
        try:
            while first < len(self._inputs):
                while self._num_ahead > AHEAD_TOKENS:
                    self._room.clear()
                    await self._room.wait()
                first = await self._send_chunk(flow, first)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            flow.fail(error)

    async def _send_chunk(self, flow: Items, first: int) -> int:
        """The items from `first` on that make a chunk; where the next one begins."""
        end, num_chars = first, 0
        while end < len(self._inputs) and end - first < CHUNK_ITEMS and (end == first or num_chars < CHUNK_CHARS):
            num_chars += chars_of(self._inputs[end])
            end += 1
        chunk = self._inputs[first:end]
        made = await self._model.prompts.offload(num_chars, lambda: self._make(chunk))
        good: list[tuple[int, Item]] = []
        for index, item in enumerate(made, first):
            if item.error:
                self._fail(index, item.error, 400, item.code)
                continue
            good.append((index, item))
            self.num_tokens += len(item.ids)
            self._num_ahead += len(item.ids)
            self._lengths[index] = len(item.ids)
            if item.truncated_from:
                self.truncated[index] = item.truncated_from
        is_last = end == len(self._inputs)
        runs = _consecutive(good)
        for run in runs:
            flow.send(self._message(run, is_last=is_last and run is runs[-1]))
        if is_last and not runs and self.num_tokens:  # the engine is to know that nothing more comes
            flow.send(AddItems(self._id, self._task, len(self._inputs), b"", b"", options=self._options))
        if len(good) < len(made):
            flow.put([])  # errors count as results
        return end

    def _message(self, run: list[tuple[int, Item]], *, is_last: bool) -> AddItems:
        """Items with consecutive indices, for the engine."""
        items = [item for _, item in run]
        ids = [token for item in items for token in item.ids]
        has_prompt = any(item.num_prompt for item in items)
        has_types = any(item.types is not None for item in items)
        has_marks = any(item.marks for item in items)
        return AddItems(
            self._id,
            self._task,
            run[0][0],
            _packed(ids),
            _packed([len(item.ids) for item in items]),
            _packed([item.num_prompt for item in items]) if has_prompt else b"",
            b"".join(bytes(item.types or len(item.ids)) for item in items) if has_types else b"",
            options=self._options,
            is_last=is_last,
            num_unseen=_packed([item.num_unseen for item in items]) if any(item.num_unseen for item in items) else b"",
            marks=b"".join(item.marks or bytes(len(item.ids)) for item in items) if has_marks else b"",
        )

    def _finish(self, output: ItemOutput, take: Take) -> None:
        """One item has come back."""
        num_tokens = self._lengths.pop(output.index)
        self._num_ahead -= num_tokens
        if self._num_ahead <= AHEAD_TOKENS:
            self._room.set()
        if output.code == "aborted" and output.error:
            raise unavailable(f"{output.error}; try again", "aborted")
        if output.error:
            self._fail(output.index, output.error, 500, output.code)
            return
        take(output.index, output)
        self._done(output.index)

    def _fail(self, index: int, why: str, status: int, code: str) -> None:
        """An item has no result."""
        where = f"{self._param}[{index}]" if self._is_list else self._param
        if self._where is not None:
            where = self._where(index)
        error = HttpError(status, f"{where}: {why}", param=where, code=code)
        if not self._keeps_errors:
            raise error
        self.errors[index] = error
        self._done(index)

    def _done(self, index: int) -> None:
        self._num_left -= 1
        self._place.done(weight_of(self._inputs[index]))


def _consecutive(items: list[tuple[int, Item]]) -> list[list[tuple[int, Item]]]:
    """Cut where an index is left out."""
    runs: list[list[tuple[int, Item]]] = []
    for index, item in items:
        if runs and runs[-1][-1][0] == index - 1:
            runs[-1].append((index, item))
        else:
            runs.append([(index, item)])
    return runs


def _packed(numbers: list[int]) -> bytes:
    return np.array(numbers, "<i4").tobytes()
