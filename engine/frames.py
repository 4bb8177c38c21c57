"""Frames on the local socket between API and engine process: 4 bytes little-endian length, then msgpack.

Sizes are capped before anything is allocated; a frame that breaks the rules ends the connection, never the process' health.
A request with a value of a wrong type breaks no rule of framing: it is handed on as an InvalidRequest, to be refused alone.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from octavo.engine.messages import MAX_FRAME_BYTES, FromEngine, ToEngine

STUCK_S = 60.0  # a reader with a full backlog that it does not take for so long is given up
_HEADER = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """A message as one frame; ValueError if it is larger than a frame may be."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes; at most {MAX_FRAME_BYTES} go into one frame")
    return _HEADER.pack(len(body)) + body


class InvalidRequest(NamedTuple):
    """An AddRequest or AddItems whose fields are not what they must be."""

    request_id: str
    reason: str


class FrameReader:
    """Cuts a byte stream into messages."""

    def __init__(self, kind: type[ToEngine] | type[FromEngine]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ToEngine | FromEngine | InvalidRequest]:
        """Whole messages in `data` and what was kept before. ValueError for a frame beyond the cap, msgspec.DecodeError
        for one that is no message of this kind."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 4:
            (size,) = _HEADER.unpack_from(self._buffer, at)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
            if len(self._buffer) - at - 4 < size:
                break
            body = bytes(self._buffer[at + 4 : at + 4 + size])
            at += 4 + size
            message: ToEngine | FromEngine | InvalidRequest
            try:
                message = self._decoder.decode(body)
            except msgspec.ValidationError as error:
                message = _invalid(body, error)
            yield message
        del self._buffer[:at]


def _invalid(body: bytes, error: msgspec.ValidationError) -> InvalidRequest:
    """Whose request it was. Raises the error itself when it was none."""
    match msgspec.msgpack.decode(body):
        case ["AddRequest" | "AddItems", str(request_id), *_]:
            return InvalidRequest(request_id, str(error))
    raise error


class FrameWriter:
    """Sends frames without blocking the engine's step; what the socket does not take waits here, up to a bound.

    A reader that is slow, or stopped for a while, loses nothing: at the bound the engine waits for it. One that has not
    brought the backlog below the bound within `stuck_s` will hardly ever: TimeoutError, which ends the engine and with
    that is heard by whoever asks for its health. The socket must not block.
    """

    def __init__(self, sock: socket.socket, max_backlog_bytes: int = MAX_FRAME_BYTES, stuck_s: float = STUCK_S) -> None:
        self._socket = sock
        self._backlog = bytearray()
        self._max_backlog_bytes = max_backlog_bytes
        self._stuck_s = stuck_s

    @property
    def is_behind(self) -> bool:
        """Something waits to be sent."""
        return bool(self._backlog)

    def send(self, message: msgspec.Struct) -> None:
        """Queues a message and sends what the socket takes now; waits only when the backlog is beyond its bound."""
        self._backlog += encode(message)
        self.flush()
        if len(self._backlog) > self._max_backlog_bytes:
            self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        ready = select.poll()
        ready.register(self._socket, select.POLLOUT)
        deadline = time.monotonic() + self._stuck_s
        while len(self._backlog) > self._max_backlog_bytes:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(
                    f"{len(self._backlog)} bytes wait for a reader that did not take enough of them in {self._stuck_s:g} s"
                )
            ready.poll(math.ceil(left_s * 1000))
            self.flush()

    def finish(self, deadline_s: float) -> None:
        """Sends all that waits; OSError if the other side is gone or does not take it in time. Leaves the socket blocking."""
        self._socket.settimeout(deadline_s)
        self._socket.sendall(self._backlog)
        self._backlog.clear()

    def flush(self) -> None:
        """Sends what the socket takes now."""
        while self._backlog:
            try:
                sent = self._socket.send(memoryview(self._backlog)[: 1 << 18])
            except BlockingIOError:
                return
            del self._backlog[:sent]
