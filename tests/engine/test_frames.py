"""Bytes cut anywhere give the same messages; sizes that lie are refused early; a slow reader loses nothing."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from octavo.engine import frames
from octavo.engine.frames import FrameReader, FrameWriter, InvalidRequest, encode
from octavo.engine.messages import (
    MAX_FRAME_BYTES,
    AbortRequest,
    AddRequest,
    Fatal,
    FinishRequest,
    FromEngine,
    StatsRequest,
    ToEngine,
)
from octavo.engine.sampling_params import SamplingParams

MESSAGES = [
    AddRequest("a", [1, 2, 3], SamplingParams(seed=2**64 - 1, logit_bias={7: -1.5}), salt=b"\x00\xff"),
    StatsRequest(),
    AbortRequest("a"),
    FinishRequest("ü" * 300),
]
Sockets = tuple[socket.socket, socket.socket]


def reader() -> FrameReader:
    return FrameReader(ToEngine)  # type: ignore[arg-type]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Two ends with small buffers; the first does not block."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def receive(sock: socket.socket, count: int) -> list[str]:
    """The texts of so many Fatal messages."""
    found: list[str] = []
    cutter = FrameReader(FromEngine)  # type: ignore[arg-type]
    while len(found) < count:
        found += [message.message for message in cutter.feed(sock.recv(1 << 16))]  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
def test_bytes_cut_anywhere_give_the_same_messages(size: int) -> None:
    data, cutter = b"".join(map(encode, MESSAGES)), reader()
    found = [m for at in range(0, len(data), size) for m in cutter.feed(data[at : at + size])]
    assert found == MESSAGES


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 0xFFFFFFFF])
def test_a_size_beyond_the_cap_is_refused_before_its_body_is_there(size: int) -> None:
    with pytest.raises(ValueError, match="at most"):
        list(reader().feed(encode(MESSAGES[2]) + struct.pack("<I", size)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x93\xa9NoSuchTag\x01\x02",
        encode(Fatal("for the other side"))[4:],
        b"\x91" * 5000,
    ],
)
def test_what_is_no_message_is_an_error_and_nothing_worse(body: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        list(reader().feed(struct.pack("<I", len(body)) + body))


def test_a_request_with_a_value_of_a_wrong_type_is_handed_on_by_name_and_those_around_it_too() -> None:
    wrong = [
        msgspec.structs.replace(MESSAGES[0], prompt=[1.5]),
        msgspec.structs.replace(MESSAGES[0], request_id="b", params=SamplingParams(seed="x")),  # type: ignore[arg-type]
    ]
    found = list(reader().feed(b"".join(map(encode, [MESSAGES[1], *wrong, MESSAGES[2]]))))
    assert (found[0], found[3]) == (MESSAGES[1], MESSAGES[2])
    assert [(type(m), m.request_id) for m in found[1:3]] == [(InvalidRequest, "a"), (InvalidRequest, "b")]  # type: ignore[union-attr]


def test_a_message_beyond_the_cap_is_not_sent(monkeypatch: pytest.MonkeyPatch, sockets: Sockets) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 100)
    writer = FrameWriter(sockets[0])
    with pytest.raises(ValueError, match="at most 100"):
        writer.send(Fatal("x" * 200))
    writer.send(Fatal("small"))
    assert receive(sockets[1], 1) == ["small"]


def test_what_the_socket_does_not_take_waits_in_order(sockets: Sockets) -> None:
    writer = FrameWriter(sockets[0])
    texts = [f"{i}" * 3000 for i in range(60)]
    for text in texts:
        writer.send(Fatal(text))
    assert writer.is_behind
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(receive(sockets[1], len(texts))))
    thread.start()
    while writer.is_behind:
        writer.flush()
    thread.join(10)
    assert found == texts


def test_a_backlog_at_its_bound_waits_for_the_reader(sockets: Sockets) -> None:
    writer = FrameWriter(sockets[0], max_backlog_bytes=20_000)
    texts = ["y" * 5000 for _ in range(100)]
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(receive(sockets[1], len(texts))))
    thread.start()
    for text in texts:
        writer.send(Fatal(text))
        assert len(writer._backlog) <= 20_000
    writer.finish(10)
    thread.join(10)
    assert found == texts and not writer.is_behind


def test_a_reader_that_takes_nothing_is_given_up_and_one_that_trickles_too(sockets: Sockets) -> None:
    ours, theirs = sockets
    writer = FrameWriter(ours, max_backlog_bytes=20_000, stuck_s=0.3)
    writer.send(Fatal("y" * 10_000))
    is_over = threading.Event()

    def trickle() -> None:
        while not is_over.wait(0.02):
            theirs.recv(100)

    thread = threading.Thread(target=trickle)
    for is_trickling in (False, True):
        if is_trickling:
            thread.start()
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="wait for a reader"):
            writer.send(Fatal("y" * 1_000_000))
        assert 0.3 <= time.monotonic() - started < 5
    is_over.set()
    thread.join(10)


def test_a_reader_that_goes_while_it_is_waited_for_is_noticed_at_once(sockets: Sockets) -> None:
    ours, theirs = sockets
    threading.Timer(0.1, theirs.close).start()
    with pytest.raises(ConnectionError):
        FrameWriter(ours, max_backlog_bytes=20_000, stuck_s=60).send(Fatal("y" * 1_000_000))


def test_finishing_does_not_wait_for_ever_for_a_reader_that_sleeps(sockets: Sockets) -> None:
    writer = FrameWriter(sockets[0])
    writer.send(Fatal("z" * 3_000_000))
    with pytest.raises(OSError, match="timed out"):
        writer.finish(0.05)
