"""One call's choices running in the engine: submit, turn tokens into text, stop, abort.

One pump task per choice reads the engine; the handler reads `changes()` (stream) or `finished()` (whole answer). What the
handler has not taken yet is joined, so a slow client gets fewer, larger chunks; when its buffer is full the pump waits,
and after `slow_client_s` the call is dropped. Invariants: however a call ends, every pump ends and every unfinished engine
request is aborted; text is never released before it is certain; logprobs leave with the text they belong to.
Times are monotonic seconds, offsets count characters of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, cast

from octavo.engine.answer import AnswerText
from octavo.engine.errors import EngineDeadError, OctavoError
from octavo.engine.messages import NO_TOKEN_ALLOWED, AddRequest, RequestOutput, TokenLogprobs
from octavo.engine.server.bounds import StreamLimits
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.http import HttpError, unavailable
from octavo.engine.server.logs import log_fault
from octavo.engine.server.metrics import Metrics

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText
    from octavo.engine.text.output import TokenText


class TokenInfo(NamedTuple):
    """A token with its text and place in the answer, and its logprobs (None: position 0 of a prompt)."""

    token: TokenText
    logprobs: TokenLogprobs | None


class Choice:
    """One answer in the making. `pending_*` is what the handler has not taken yet."""

    def __init__(self, index: int, request: AddRequest, text: ModelText) -> None:
        self.index, self.request = index, request
        self._answer = AnswerText(text, request.params)
        self._has_logprobs = request.params.logprobs is not None
        self._held: list[TokenInfo] = []
        self.pending_text: list[str] = []
        self.pending_infos: list[TokenInfo] = []
        self.num_cached = 0
        self.is_finish_taken = False
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        self.first_s = self.last_s = 0.0

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far, the end token included."""
        return self._answer.num_tokens

    @property
    def finish_reason(self) -> str:
        """Why it ended, '' while it goes on."""
        return self._answer.finish_reason

    @property
    def is_done(self) -> bool:
        """True once there is a finish reason."""
        return bool(self._answer.finish_reason)

    @property
    def is_stopped_by_string(self) -> bool:
        """True when a stop string ended it; the engine may not know yet."""
        return self._answer.is_stopped_by_string

    def take(self) -> tuple[str, list[TokenInfo]]:
        """Everything pending, joined."""
        text, infos = "".join(self.pending_text), self.pending_infos
        self.pending_text, self.pending_infos = [], []
        return text, infos

    def feed(self, out: RequestOutput) -> int:
        """Takes one engine output; returns the number of characters that became certain."""
        if out.num_cached:
            self.num_cached = out.num_cached
        if out.prompt_logprobs is not None:
            self.prompt_logprobs = out.prompt_logprobs
        delta = self._answer.feed(out)
        if delta.text:
            self.pending_text.append(delta.text)
        if self._has_logprobs:
            entries = out.logprobs or []
            self._held += [TokenInfo(token, lp) for token, lp in zip(delta.tokens, entries, strict=False)]
            self._release_infos()
        return len(delta.text)

    def _release_infos(self) -> None:
        """Logprobs leave with the text they belong to; those of a stop string never do."""
        if self.is_done and not self.is_stopped_by_string:
            num = len(self._held)
        else:
            num = sum(1 for info in self._held if info.token.offset < self._answer.num_emitted_chars)
        self.pending_infos += self._held[:num]
        self._held = self._held[num:]


class _Silence:
    """Wakes a stream that has written nothing for `limit_s`. One timer per stream, moved only when it fires."""

    def __init__(self, limit_s: float, wake: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit_s, self._wake = limit_s, wake
        self._due_s = self._loop.time() + limit_s
        self._timer = self._loop.call_at(self._due_s, self._on_timer)

    def _on_timer(self) -> None:
        next_s = self._due_s
        if self.is_overdue:
            self._wake.set()
            next_s = self._loop.time() + self._limit_s
        self._timer = self._loop.call_at(next_s, self._on_timer)

    @property
    def is_overdue(self) -> bool:
        """True when it is time to write something."""
        return self._loop.time() >= self._due_s

    def begin(self) -> None:
        """Something was written just now."""
        self._due_s = self._loop.time() + self._limit_s

    def end(self) -> None:
        """No more waking."""
        self._timer.cancel()


class Run:
    """All choices of one call. Use: `start()`, then `changes()` or `finished()`, and always `close()`."""

    def __init__(
        self,
        engine: Engine,
        text: ModelText,
        metrics: Metrics,
        limits: StreamLimits,
        requests: Sequence[AddRequest],
        *,
        is_stream: bool,
    ) -> None:
        self._engine, self._metrics, self._limits, self._is_stream = engine, metrics, limits, is_stream
        self.choices = [Choice(index, request, text) for index, request in enumerate(requests)]
        self.error: OctavoError | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._num_pending_chars = 0
        self._pumps: list[asyncio.Task[None]] = []
        self._owner: asyncio.Task[object] | None = None

    @property
    def is_done(self) -> bool:
        """True when every choice has its finish reason."""
        return all(choice.is_done for choice in self.choices)

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far, all choices."""
        return sum(choice.num_tokens for choice in self.choices)

    def start(self) -> None:
        """Submits everything."""
        self._owner = cast("asyncio.Task[object] | None", asyncio.current_task())
        self._pumps = [asyncio.ensure_future(self._pump(choice)) for choice in self.choices]

    async def _pump(self, choice: Choice) -> None:
        try:
            outputs = cast("AsyncGenerator[RequestOutput, None]", self._engine.submit(choice.request))
            async with aclosing(outputs):
                async for out in outputs:
                    self._take(choice, out)
                    if choice.is_done:
                        if choice.is_stopped_by_string and not out.finish_reason:
                            await self._engine.finish(choice.request.request_id)
                        return
                    if not self._room.is_set():
                        await self._wait_for_room()
            raise EngineDeadError("it closed a request without finishing it")
        except OctavoError as error:
            self._fail(error)
        except Exception as error:  # a fault of ours must end the call, never leave it waiting
            log_fault(error, choice.request.request_id)
            self._fail(HttpError(500, "internal error while making the answer", code="internal_error"))

    def _take(self, choice: Choice, out: RequestOutput) -> None:
        now = time.monotonic()
        before = choice.num_tokens
        if out.finish_reason == "error" and out.code == NO_TOKEN_ALLOWED:
            raise HttpError(400, out.error, code=out.code)
        if out.finish_reason == "error":
            raise HttpError(500, f"the engine failed this request: {out.error}", code="engine_error")
        if out.finish_reason == "abort":
            raise unavailable(f"{out.error or 'the request was ended by the server'}; try again", "aborted")
        num_chars = choice.feed(out)
        self._time_tokens(choice, choice.num_tokens - before, now)
        if self._is_stream:
            self._num_pending_chars += num_chars
            if self._num_pending_chars > self._limits.max_buffered_chars:
                self._room.clear()
        if choice.is_done:
            self._count_finished(choice, now)
        if num_chars or choice.is_done or out.tokens:
            self._wake.set()

    def _time_tokens(self, choice: Choice, num_new: int, now: float) -> None:
        if not num_new:
            return
        if not choice.first_s:
            choice.first_s = now
            self._metrics.observe("time_to_first_token_seconds", now - choice.request.arrival_s)
            num_new -= 1
        if num_new:
            share = (now - choice.last_s) / num_new if choice.last_s else 0.0
            for _ in range(num_new):
                self._metrics.observe("inter_token_latency_seconds", share)
        choice.last_s = now

    def _count_finished(self, choice: Choice, now: float) -> None:
        metrics = self._metrics
        metrics.finished[choice.finish_reason] += 1
        if choice.request.choice == 0:
            metrics.prompt_tokens += len(choice.request.prompt)
        metrics.generation_tokens += choice.num_tokens
        metrics.observe("e2e_request_latency_seconds", now - choice.request.arrival_s)
        metrics.observe("request_prompt_tokens", len(choice.request.prompt))
        metrics.observe("request_generation_tokens", choice.num_tokens)

    async def _wait_for_room(self) -> None:
        try:
            await asyncio.wait_for(self._room.wait(), self._limits.slow_client_s)
        except asyncio.TimeoutError:
            self._metrics.aborts["slow_client"] += 1
            self._fail(HttpError(408, "the client reads too slowly", code="slow_client"))
            if self._owner is not None:
                self._owner.cancel()

    def end(self, error: OctavoError) -> None:
        """Ends the call from outside: its client gets what is there and then this error."""
        self._fail(error)

    def _fail(self, error: OctavoError) -> None:
        if self.error is None:
            self.error = error
            self._metrics.finished["error"] += 1
            self._wake.set()

    async def started(self) -> None:
        """Waits for the first output or refusal, but not longer than `first_event_s`; raises a refusal."""
        if not self._wake.is_set():
            try:
                await asyncio.wait_for(self._wake.wait(), self._limits.first_event_s)
            except asyncio.TimeoutError:
                return
        if self.error is not None:
            raise self.error

    async def changes(self) -> AsyncIterator[list[Choice]]:
        """Choices with something to take, until all are finished and taken; an empty list asks for a ping.

        Raises the first error of any choice, after what came before it was taken.
        """
        silence = _Silence(self._limits.ping_s, self._wake)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                changed = [c for c in self.choices if c.pending_text or c.pending_infos or self._is_new_finish(c)]
                if changed or silence.is_overdue:
                    yield changed
                    silence.begin()
                    self._num_pending_chars = sum(len(part) for c in self.choices for part in c.pending_text)
                    if self._num_pending_chars <= self._limits.max_buffered_chars:
                        self._room.set()
                if self.error is not None:
                    raise self.error
                if all(choice.is_finish_taken for choice in self.choices):
                    return
        finally:
            silence.end()

    @staticmethod
    def _is_new_finish(choice: Choice) -> bool:
        return choice.is_done and not choice.is_finish_taken

    async def finished(self) -> None:
        """Waits until every choice is finished; raises the first error."""
        while self.error is None and not self.is_done:
            self._wake.clear()
            if self.error is None and not self.is_done:
                await self._wake.wait()
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Ends every pump; unfinished engine requests are aborted by closing their iterators."""
        if not self.is_done and self.error is None:
            self._metrics.aborts["client_gone"] += 1
            self._metrics.finished["abort"] += sum(not choice.is_done for choice in self.choices)
        for pump, choice in zip(self._pumps, self.choices, strict=False):
            if not choice.is_done:  # a finished one may still be telling the engine so
                pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
