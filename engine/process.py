"""The engine process: `python -m octavo.engine.process FD`, a socket inherited from the API process.

First frame in: the configuration as JSON text. Then it loads, proves one token, says Ready and loops: take what came in,
step if there is work, send the step's outputs; sleep on the socket otherwise. It ends when the socket ends (the parent is
gone), when told to drain, or with Fatal when it cannot go on. A thread ends it with the parent even in mid-step (parent.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from octavo.engine.config import EngineConfig, read_environment
from octavo.engine.errors import InternalError, OctavoError, RequestError, ShuttingDownError, trace_of
from octavo.engine.frames import FrameReader, FrameWriter, InvalidRequest
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
    Ready,
    Rejected,
    Stats,
    StatsRequest,
    ToEngine,
)
from octavo.engine.parent import end_with_parent
from octavo.engine.starting import begin, roomy, settle

log = logging.getLogger("octavo.engine")
LAST_WORDS_S = 5.0  # for what is still unsent when the engine ends


class Core(Protocol):
    """What the loop asks of a model: `EngineCore` of a decoder, `PoolingCore` of one that gives vectors. `frame`: the message
    that holds a step's outputs. `is_idle`: no request is open; one may be without work, when more of it is to come."""

    frame: Any

    @property
    def info(self) -> EngineInfo: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def is_idle(self) -> bool: ...
    def add(self, message: Any) -> None: ...
    def abort(self, request_id: str) -> bool: ...
    def finish(self, request_id: str, choice: int | None = None) -> bool: ...
    def abort_all(self, reason: str) -> list[Any]: ...
    def step(self) -> list[Any]: ...
    def undeliverable(self, output: Any, why: str) -> Any: ...
    def rest(self, *, is_last: bool = False) -> None: ...
    def stats(self) -> dict[str, float]: ...


class EngineProcess:
    """The loop around a core."""

    core: Core

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.reader = FrameReader(ToEngine)  # type: ignore[arg-type]
        self.writer = FrameWriter(sock)
        self.is_open = True
        self.drain_until: float | None = None
        self._poll = select.poll()  # not select.select, which knows no descriptor from 1024 on

    def run(self, config: EngineConfig) -> int:
        """Loads and serves until the end; the exit status."""
        try:
            self.core = opened_core(config)
        except OctavoError as error:
            self.die(str(error))
            return 1
        settle()
        self.socket.setblocking(False)
        self.writer.send(Ready(PROTOCOL_VERSION, self.core.info))
        while self.is_open:
            has_work = self.core.has_work
            if not has_work:
                self.core.rest()
            self.receive(0.0 if has_work else self._idle_s())
            if not self.is_open:
                break
            if self.core.has_work:
                self.send_outputs(self.core.step())
            if self.drain_until is not None and (self.core.is_idle or time.monotonic() > self.drain_until):
                self.send_outputs(self.core.abort_all("the engine shut down before this answer was finished"))
                break
        self.core.rest(is_last=True)
        if self.is_open:
            self.writer.finish(LAST_WORDS_S)
        return 0

    def send_outputs(self, outputs: list[Any]) -> None:
        """One frame if they fit, else halves; what does not fit by itself (scores of a huge prompt) ends with an error."""
        if not outputs:
            return
        try:
            self.writer.send(self.core.frame(outputs))
        except ValueError as error:
            if len(outputs) > 1:
                half = len(outputs) // 2
                self.send_outputs(outputs[:half])
                self.send_outputs(outputs[half:])
                return
            self.writer.send(self.core.frame([self.core.undeliverable(outputs[0], str(error))]))

    def die(self, reason: str) -> None:
        """Last words, if there is still somebody to hear them."""
        with contextlib.suppress(OSError):
            self.writer.send(Fatal(reason))
            self.writer.finish(LAST_WORDS_S)

    def _idle_s(self) -> float | None:
        if self.drain_until is None:
            return None
        return max(0.0, self.drain_until - time.monotonic())

    def receive(self, timeout_s: float | None) -> None:
        """Takes everything that has come in; waits up to `timeout_s` for the first byte (None: for ever)."""
        self._poll.register(self.socket, select.POLLIN | (select.POLLOUT if self.writer.is_behind else 0))
        events = dict(self._poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)))
        found = events.get(self.socket.fileno(), 0)
        if found & select.POLLOUT:
            self.writer.flush()
        while found & ~select.POLLOUT and self.is_open:  # an end or an error of the socket is read, too
            try:
                data = self.socket.recv(1 << 18)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self.is_open = False
                return
            self.handle(self.reader.feed(data))

    def handle(self, messages: Iterable[ToEngine | FromEngine | InvalidRequest]) -> None:
        """Acts on messages in order."""
        for message in messages:
            match message:
                case AddRequest() | AddItems():
                    self.add(message)
                case InvalidRequest(request_id, reason):
                    self.refuse(request_id, RequestError(f"the request has a field of a wrong type: {reason}"))
                case AbortRequest(request_id):
                    self.core.abort(request_id)
                case FinishRequest(request_id):
                    self.core.finish(request_id)
                case StatsRequest():
                    self.writer.send(Stats(self.core.stats()))
                case DrainRequest(deadline_s):
                    self.drain_until = time.monotonic() + deadline_s

    def add(self, message: AddRequest | AddItems) -> None:
        """Queues a request or says why not, whatever the reason: one caller's input ends nobody else's answers."""
        try:
            is_more = isinstance(message, AddItems) and message.first > 0
            if self.drain_until is not None and not is_more:
                raise ShuttingDownError("the engine is shutting down; ask another one")
            self.core.add(message)
        except RequestError as error:
            self.refuse(message.request_id, error)
        except Exception as error:
            log.error("request %s could not be added: %s", message.request_id, trace_of(error))
            self.refuse(message.request_id, InternalError(f"the engine failed on this request: {type(error).__name__}"))

    def refuse(self, request_id: str, error: RequestError) -> None:
        """Tells the other side why a request does not run."""
        retry = getattr(error, "retry_after_s", 0.0)
        self.writer.send(Rejected(request_id, error.status, str(error), error.param, error.code, retry))


def opened_core(config: EngineConfig) -> Core:
    """The model of `config`, loaded, whatever it gives."""
    from octavo.engine.models.kind import gives_vectors

    if gives_vectors(config.model):
        from octavo.engine.pooling.build import build_pooling_core

        return build_pooling_core(config)
    from octavo.engine.build import build_core

    return build_core(config)


@roomy
def main(argv: list[str]) -> int:
    """Entry point; arguments: file descriptor of the socket, parent's process id, and a log level to put above the
    environment's."""
    begin()
    sock = socket.socket(fileno=int(argv[0]))
    sock.set_inheritable(False)
    end_with_parent(int(argv[1]), sock)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides, and drains first
    level = argv[2] if len(argv) > 2 else read_environment().log
    form = "%(asctime)s %(levelname)s engine: %(message)s"
    logging.basicConfig(level=level.upper(), format=form, datefmt="%Y-%m-%dT%H:%M:%S", stream=sys.stderr)
    size = int.from_bytes(_read(sock, 4), "little")
    config = msgspec.json.decode(_read(sock, size), type=EngineConfig)
    process = EngineProcess(sock)
    try:
        return process.run(config)
    except ConnectionError:  # nobody is there to be served
        return 0
    except TimeoutError as error:  # somebody is, but does not listen
        log.error("the engine ends: %s", error)
        return 1
    except Exception as error:
        log.exception("the engine ends")
        process.die(f"{type(error).__name__}: {error}")
        return 1


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise SystemExit(0)
        data += piece
    return data


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
