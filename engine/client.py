"""`AsyncEngine`: an engine in a process of its own, used from asyncio.

    engine = await AsyncEngine.start(EngineConfig(model="..."))
    async for output in engine.submit(AddRequest(...)): ...
    with engine.open_items("id") as items:  # of a model that gives vectors
        items.send(AddItems(...))
        outputs = await items.next()

Every open iterator raises EngineDeadError as soon as the engine's end is noticed (its socket closes with it); closing an
iterator early aborts its request. Nothing here waits without a deadline or the socket's end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from octavo.engine.config import EngineConfig
from octavo.engine.errors import (
    EngineDeadError,
    InternalError,
    OverloadedError,
    RequestError,
    ShuttingDownError,
    TooLargeError,
)
from octavo.engine.frames import FrameReader, encode
from octavo.engine.messages import (
    PROTOCOL_VERSION,
    AbortRequest,
    AddItems,
    AddRequest,
    DrainRequest,
    EngineInfo,
    Fatal,
    FinishRequest,
    FromEngine,
    ItemOutput,
    ItemOutputs,
    Ready,
    Rejected,
    RequestOutput,
    Stats,
    StatsRequest,
    StepOutputs,
)
from octavo.engine.spawn import spawn

log = logging.getLogger("octavo.engine")
KILL_AFTER_S = 5.0
STATS_DEADLINE_S = 5.0


class ItemFlow:
    """Items of one request on their way: sent in any number of messages, results taken as they come, in any order."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send_message = send
        self._outputs: list[ItemOutput] = []
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self.num_open = 0  # items sent whose result has not come

    def send(self, message: AddItems) -> None:
        """To the engine. RequestError for what no frame holds."""
        try:
            self._send_message(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"the request cannot be sent to the engine: {error}") from error
        self.num_open += len(message.lengths) // 4

    def put(self, outputs: list[ItemOutput]) -> None:
        """Results that have come."""
        self.num_open -= len(outputs)
        self._outputs += outputs
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """No more results will come: `next` raises this."""
        self._error = self._error or error
        self._wake.set()

    async def next(self) -> list[ItemOutput]:
        """What has come since the last call; waits for it. Empty when `put` was called with nothing."""
        await self._wake.wait()
        self._wake.clear()
        if self._error is not None:
            raise self._error
        outputs, self._outputs = self._outputs, []
        return outputs


class AsyncEngine:
    """A running engine process."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process = process
        self._socket = sock
        self._info: EngineInfo | None = None
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._queues: dict[str, asyncio.Queue[RequestOutput | Exception]] = {}
        self._flows: dict[str, ItemFlow] = {}
        self._stats: list[asyncio.Future[dict[str, float]]] = []
        self._death = ""
        self._is_closing = False
        self._ended = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._outbox: list[bytes] = []  # frames of this turn of the event loop
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, config: EngineConfig, *, deadline_s: float = 600.0) -> AsyncEngine:
        """Spawns and waits until ready. EngineDeadError with the engine's own words if it cannot start."""
        return await cls.attach(*spawn(config), deadline_s=deadline_s)

    @classmethod
    async def attach(
        cls, process: subprocess.Popen[bytes], sock: socket.socket, *, deadline_s: float = 600.0
    ) -> AsyncEngine:
        """Takes over a process that `spawn` started."""
        engine = cls(process, sock)
        reader, engine._writer = await asyncio.open_connection(sock=sock)
        engine._task = asyncio.create_task(engine._read(reader), name="octavo-engine-reader")
        try:
            engine._info = await asyncio.wait_for(asyncio.shield(engine._ready), deadline_s)
        except asyncio.TimeoutError:
            await engine.close()
            raise EngineDeadError(f"the engine was not ready within {deadline_s:.0f} s") from None
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def info(self) -> EngineInfo:
        """What the engine said of itself when it became ready."""
        if self._info is None:
            raise EngineDeadError("the engine is not ready")
        return self._info

    @property
    def is_alive(self) -> bool:
        """False from the moment the engine's end was noticed."""
        return not self._ended.is_set()

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return self._process.pid

    async def submit(self, request: AddRequest) -> AsyncIterator[RequestOutput]:
        """Outputs of one request, one per step that gave it something, until all its choices have a finish reason."""
        if not self.is_alive:
            raise EngineDeadError(self._death)
        if request.request_id in self._queues:
            raise RequestError(f"request id {request.request_id!r} is in use; choose another", param="request_id")
        queue: asyncio.Queue[RequestOutput | Exception] = asyncio.Queue()
        self._queues[request.request_id] = queue
        num_open = request.params.n
        try:
            try:
                self._send(request)
            except (TypeError, ValueError, OverflowError) as error:  # what no frame can hold
                num_open = 0
                raise RequestError(f"the request cannot be sent to the engine: {error}") from error
            while num_open:
                item = await queue.get()
                if isinstance(item, Exception):
                    num_open = 0
                    raise item
                num_open -= bool(item.finish_reason)
                yield item
        finally:
            del self._queues[request.request_id]
            if num_open and self.is_alive:
                self._send(AbortRequest(request.request_id))

    @contextmanager
    def open_items(self, request_id: str) -> Iterator[ItemFlow]:
        """Items of one request, for a model that gives vectors; what is left at the end is aborted."""
        if not self.is_alive:
            raise EngineDeadError(self._death)
        if request_id in self._flows:
            raise RequestError(f"request id {request_id!r} is in use; choose another", param="request_id")
        flow = self._flows[request_id] = ItemFlow(self._send)
        is_left = True
        try:
            yield flow
            is_left = flow.num_open > 0
        finally:
            del self._flows[request_id]
            if is_left and self.is_alive:
                self._send(AbortRequest(request_id))

    async def finish(self, request_id: str) -> None:
        """Ends a request as finished: its stop string was seen."""
        queue = self._queues.get(request_id)
        if queue is not None and self.is_alive:
            self._send(FinishRequest(request_id))

    async def abort(self, request_id: str) -> None:
        """Ends a request nobody waits for."""
        if self.is_alive:
            self._send(AbortRequest(request_id))

    async def stats(self) -> dict[str, float]:
        """Gauges and counters of the engine."""
        if not self.is_alive:
            raise EngineDeadError(self._death)
        future: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()
        self._stats.append(future)
        self._send(StatsRequest())
        return await asyncio.wait_for(future, STATS_DEADLINE_S)

    async def drain(self, deadline_s: float) -> None:
        """Takes nothing new, finishes what runs; returns when the engine has ended. What is not finished within
        `deadline_s` ends with the reason "abort"."""
        self._is_closing = True
        if self.is_alive:
            self._send(DrainRequest(deadline_s))
            try:
                await asyncio.wait_for(self._ended.wait(), deadline_s + KILL_AFTER_S)
            except asyncio.TimeoutError:
                self._process.kill()
        await self.close()

    async def close(self) -> None:
        """Ends the engine process, by force if it does not go."""
        self._is_closing = True
        if self._writer is not None:
            self._flush()
            self._writer.close()
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(loop.run_in_executor(None, self._process.wait), KILL_AFTER_S)
        except asyncio.TimeoutError:
            self._process.kill()
            await loop.run_in_executor(None, self._process.wait)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _send(self, message: Any) -> None:
        """Messages of one turn of the event loop go out together, so that a call's choices meet in the engine: one that
        came after the first choice's step could not share all of its prompt."""
        frame = encode(message)
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(frame)

    def _flush(self) -> None:
        frames, self._outbox = self._outbox, []
        if self._writer is not None and frames and not self._writer.is_closing():
            self._writer.write(b"".join(frames))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(FromEngine)  # type: ignore[arg-type]
        reason = ""
        try:
            while data := await reader.read(1 << 18):
                for message in frames.feed(data):
                    if isinstance(message, Fatal):
                        reason = message.message
                    else:
                        self._take(message)
        except (ConnectionError, ValueError, msgspec.DecodeError) as error:
            reason = reason or f"its connection broke: {error}"
        finally:
            self._end(reason)

    def _take(self, message: Any) -> None:
        match message:
            case StepOutputs(outputs):
                for output in outputs:
                    queue = self._queues.get(output.request_id)
                    if queue is not None:
                        queue.put_nowait(output)
            case ItemOutputs(items):
                for request_id, found in _by_request(items).items():
                    flow = self._flows.get(request_id)
                    if flow is not None:
                        flow.put(found)
            case Rejected():
                queue, flow = self._queues.get(message.request_id), self._flows.get(message.request_id)
                if queue is not None:
                    queue.put_nowait(_error(message))
                if flow is not None:
                    flow.fail(_error(message))
            case Ready(version, info):
                if version != PROTOCOL_VERSION:
                    raise ValueError(f"engine speaks protocol {version}, this process {PROTOCOL_VERSION}")
                if not self._ready.done():
                    self._ready.set_result(info)
            case Stats(values):
                if self._stats:
                    future = self._stats.pop(0)
                    if not future.done():
                        future.set_result(values)

    def _end(self, reason: str) -> None:
        """The engine is gone: everybody who waits hears of it now."""
        status = self._process.poll()
        self._death = reason or f"the engine process ended{'' if status is None else f' with status {status}'}"
        self._ended.set()
        error = EngineDeadError(self._death)
        if self._ready.done() and not self._is_closing:
            log.error("the engine is gone (%s): every answer is an error until it is started anew", self._death)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # seen: whoever started it may have left already
        for queue in self._queues.values():
            queue.put_nowait(error)
        for flow in self._flows.values():
            flow.fail(error)
        for future in self._stats:
            if not future.done():
                future.set_exception(error)
        self._stats.clear()


def _by_request(outputs: list[ItemOutput]) -> dict[str, list[ItemOutput]]:
    found: dict[str, list[ItemOutput]] = {}
    for output in outputs:
        found.setdefault(output.request_id, []).append(output)
    return found


def _error(message: Rejected) -> RequestError:
    for later in (OverloadedError, ShuttingDownError):
        if message.status == later.status:
            return later(message.message, retry_after_s=message.retry_after_s, code=message.code)
    if message.status == InternalError.status:
        return InternalError(message.message, code=message.code)
    kind = TooLargeError if message.code == "context_length_exceeded" else RequestError
    return kind(message.message, param=message.param, code=message.code)
