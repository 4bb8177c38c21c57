"""The engine's loop: frames that are too large are cut or ended alone, and last words arrive."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.engine.fake_executable import make_core

from octavo.engine import build, frames
from octavo.engine.config import EngineConfig
from octavo.engine.frames import FrameReader, FrameWriter, encode
from octavo.engine.messages import (
    AbortRequest,
    AddRequest,
    FromEngine,
    Rejected,
    RequestOutput,
    StepOutputs,
    TokenLogprobs,
)
from octavo.engine.process import EngineProcess
from octavo.engine.sampling_params import SamplingParams


@pytest.fixture
def pair() -> Iterator[tuple[EngineProcess, socket.socket]]:
    """An engine's loop over a fake model, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    with ours, theirs:
        process = EngineProcess(ours)
        process.core = make_core()
        yield process, theirs


def outputs_of(sock: socket.socket, count: int) -> list[RequestOutput]:
    found: list[RequestOutput] = []
    cutter = FrameReader(FromEngine)  # type: ignore[arg-type]
    while len(found) < count:
        for message in cutter.feed(sock.recv(1 << 16)):
            if isinstance(message, StepOutputs):
                found += message.outputs
    return found


def large(name: str, num_scores: int) -> RequestOutput:
    return RequestOutput(name, [1], prompt_logprobs=[TokenLogprobs(1, -0.5, 1, [1], [-0.5])] * num_scores)


def test_outputs_beyond_a_frame_are_sent_in_parts(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[EngineProcess, socket.socket]
) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 2000)
    process, sock = pair
    outputs = [large(f"r{i}", 40) for i in range(5)]
    process.send_outputs(outputs)
    assert outputs_of(sock, 5) == outputs


def test_an_output_no_frame_can_hold_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[EngineProcess, socket.socket]
) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 2000)
    process, sock = pair
    for name in ("huge", "small"):
        process.core.add(AddRequest(name, [5, 6], SamplingParams()))
    process.send_outputs([large("huge", 400), large("small", 10)])
    huge, small = outputs_of(sock, 2)
    assert (huge.request_id, huge.finish_reason) == ("huge", "error") and "fewer logprobs" in huge.error
    assert small == large("small", 10)
    assert process.core.abort("small") and not process.core.abort("huge")


def refusals_of(sock: socket.socket, count: int) -> list[Rejected]:
    cutter = FrameReader(FromEngine)  # type: ignore[arg-type]
    found: list[Rejected] = []
    while len(found) < count:
        found += [message for message in cutter.feed(sock.recv(1 << 16)) if isinstance(message, Rejected)]
    return found


def test_input_that_no_check_foresaw_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[EngineProcess, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    process, sock = pair
    add = process.core.add

    def stumbling(message: AddRequest) -> None:
        if message.request_id == "odd":
            raise ZeroDivisionError("a secret of the prompt")
        add(message)

    monkeypatch.setattr(process.core, "add", stumbling)
    untyped = AddRequest("untyped", [1.5], SamplingParams())  # type: ignore[list-item]
    requests = [AddRequest("odd", [5], SamplingParams()), untyped, AddRequest("good", [5], SamplingParams())]
    sock.sendall(b"".join(map(encode, requests)))
    process.receive(5.0)
    odd, wrong = refusals_of(sock, 2)
    assert (odd.request_id, odd.status) == ("odd", 500) and "ZeroDivisionError" in odd.message
    assert "secret" not in odd.message + caplog.text and "test_process.py" in caplog.text
    assert (wrong.request_id, wrong.status) == ("untyped", 400) and "wrong type" in wrong.message
    assert process.is_open and process.core.abort("good")


def test_last_words_reach_a_reader_that_was_slow(pair: tuple[EngineProcess, socket.socket]) -> None:
    process, sock = pair
    outputs = [large("r", 3000) for _ in range(30)]
    for output in outputs:
        process.send_outputs([output])
    assert process.writer.is_behind
    found: list[RequestOutput] = []
    thread = threading.Thread(target=lambda: found.extend(outputs_of(sock, 30)))
    thread.start()
    process.die("it is over")
    thread.join(10)
    assert found == outputs
    assert not process.writer.is_behind


def test_a_reader_that_is_gone_ends_the_loop_quietly(pair: tuple[EngineProcess, socket.socket]) -> None:
    process, sock = pair
    sock.sendall(encode(AbortRequest("nobody")))
    process.receive(5.0)
    assert process.is_open
    sock.close()
    process.receive(5.0)
    assert not process.is_open
    process.die("nobody hears this")


def test_a_parent_that_lives_but_never_reads_ends_the_loop(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[EngineProcess, socket.socket]
) -> None:
    process, sock = pair
    monkeypatch.setattr(build, "build_core", lambda config: process.core)
    process.writer = FrameWriter(process.socket, max_backlog_bytes=10_000, stuck_s=0.2)
    params = SamplingParams(max_tokens=80, ignore_eos=True, logprobs=20)
    sock.sendall(b"".join(encode(AddRequest(f"r{i}", [5, 6], params)) for i in range(200)))
    with pytest.raises(TimeoutError, match="wait for a reader"):
        process.run(EngineConfig("never opened"))


def test_a_socket_with_a_high_number_can_be_waited_for() -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2000:
        pytest.skip("this system gives no descriptor as high")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, 2000), most))
    ours, theirs = socket.socketpair()
    held = [ours.dup() for _ in range(1100)]
    high = held[-1]
    try:
        assert high.fileno() >= 1024
        high.setblocking(False)
        process = EngineProcess(high)
        process.receive(0.0)
        theirs.close()
        process.receive(5.0)
        assert not process.is_open
    finally:
        for sock in (ours, theirs, *held):
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
