"""A call's life in the server: vanished clients, slow clients, pings, rejections, a dying engine, full queues."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.engine.server.conftest import LiveServer, wait_until
from tests.engine.server.fakes import Script, endless, piece_ids

from octavo.engine.errors import OverloadedError, RequestError, ShuttingDownError, TooLargeError
from octavo.engine.server.bounds import Bounds, StreamLimits
from octavo.engine.server.state import Settings

Post = Callable[..., httpx.Response]
PATH = "/v1/chat/completions"
ASK = [{"role": "user", "content": "hi"}]
TOKEN = piece_ids(b" and")[0]


def send(server: LiveServer, path: str = PATH, **body: Any) -> socket.socket:
    """A request on a raw socket, its answer unread."""
    data = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


def read_stream(sock: socket.socket, until: bytes, timeout_s: float = 3.0) -> bytes:
    sock.settimeout(timeout_s)
    data = b""
    while until not in data:
        part = sock.recv(65536)
        if not part:
            break
        data += part
    return data


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [PATH, "/v1/completions"])
def test_client_gone_is_request_gone_within_two_steps(server: LiveServer, stream: bool, path: str) -> None:
    engine = server.engine
    engine.script = endless(TOKEN, 0.05)
    aborts = server.state.metrics.aborts["client_gone"]
    body: dict[str, Any] = {"messages": ASK} if path == PATH else {"prompt": "a"}
    sock = send(server, path, **body, stream=stream, max_tokens=400, ignore_eos=True)
    wait_until(lambda: bool(engine.running))
    time.sleep(0.12)
    steps = sum(engine.num_steps.values())
    sock.close()
    assert wait_until(lambda: not engine.running) < 1.0
    assert sum(engine.num_steps.values()) - steps <= 2
    assert len(engine.aborted) == 1
    wait_until(lambda: server.state.num_running == 0)
    assert server.state.metrics.aborts["client_gone"] == aborts + 1


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_ends_its_sending_side_is_told_and_counts_as_gone(server: LiveServer, stream: bool) -> None:
    """The documented limit of the HTTP layer: should this fail because an answer comes, mend docs/server.md."""
    engine = server.engine
    engine.script = Script([[TOKEN]] * 20, step_s=0.05)
    sock = send(server, messages=ASK, stream=stream)
    wait_until(lambda: bool(engine.running))
    time.sleep(0.12)
    steps = sum(engine.num_steps.values())
    sock.shutdown(socket.SHUT_WR)
    assert b"[DONE]" not in read_stream(sock, b"no end but the connection's", 2.0)
    assert wait_until(lambda: not engine.running) < 1.0
    assert sum(engine.num_steps.values()) - steps <= 2
    assert len(engine.aborted) == 1
    sock.close()


@pytest.mark.parametrize("stream", [True, False])
def test_client_gone_while_queued_frees_the_place(server: LiveServer, stream: bool) -> None:
    engine = server.engine
    engine.script = Script([[TOKEN]], first_delay_s=30.0)
    sock = send(server, messages=ASK, stream=stream, n=3)
    wait_until(lambda: len(engine.running) == 3)
    sock.close()
    wait_until(lambda: not engine.running and server.state.num_running == 0, 1.0)
    assert len(engine.aborted) == 3


def test_one_client_gone_leaves_the_others_alone(server: LiveServer, post: Post) -> None:
    server.engine.choose = lambda request: (
        endless(TOKEN, 0.01) if request.params.max_tokens == 400 else Script([[TOKEN]] * 5, 0.02)
    )
    sock = send(server, messages=ASK, stream=True, max_tokens=400)
    wait_until(lambda: len(server.engine.running) == 1)
    other = send(server, messages=ASK, stream=True)
    sock.close()
    assert b"[DONE]" in read_stream(other, b"[DONE]")
    other.close()


def test_finished_stream_counts_no_abort(server: LiveServer, post: Post) -> None:
    before = dict(server.state.metrics.aborts)
    for _ in range(20):
        post(PATH, messages=ASK, stream=True)
        post(PATH, messages=ASK)
        post(PATH, messages=ASK, stop="lo")
    wait_until(lambda: server.state.num_running == 0)
    assert server.state.metrics.aborts == before
    assert server.engine.aborted == []


def test_dead_engine_ends_every_stream_with_an_error(server: LiveServer, post: Post) -> None:
    engine = server.engine
    engine.script = endless(TOKEN, 0.05)
    streams = [send(server, messages=ASK, stream=True, max_tokens=400) for _ in range(4)]
    whole = send(server, messages=ASK, max_tokens=400)
    wait_until(lambda: len(engine.running) == 5)
    time.sleep(0.1)
    killed = time.monotonic()
    server.call(engine.kill)
    for sock in streams:
        text = read_stream(sock, b"\r\n0\r\n\r\n")
        assert b'data: {"error":{"message":"the engine is gone: killed by signal 9' in text
        assert b"[DONE]" not in text
        sock.close()
    answer = read_stream(whole, b"engine_dead")
    assert answer.startswith(b"HTTP/1.1 503")
    whole.close()
    assert time.monotonic() - killed < 2.0
    for path in ("/health", "/ready"):
        assert httpx.get(server.url + path, trust_env=False).status_code == 503
    assert httpx.get(server.url + "/live", trust_env=False).status_code == 200
    refused = post(PATH, messages=ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_dead")
    assert "octavo:engine_up" in httpx.get(server.url + "/metrics", trust_env=False).text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (OverloadedError("too many requests wait", retry_after_s=2.5), 429, "3"),
        (ShuttingDownError("ask another one"), 503, "1"),
        (TooLargeError("the pool has 4 blocks, the prompt needs 7"), 400, None),
        (RequestError("no", param="seed"), 400, None),
    ],
)
def test_refusal_by_the_engine_is_a_status_even_for_streams(
    server: LiveServer, post: Post, stream: bool, error: Exception, status: int, retry: str | None
) -> None:
    server.engine.script = Script([], reject=error)
    answer = post(PATH, messages=ASK, stream=stream)
    assert answer.status_code == status
    assert answer.json()["error"]["message"] == str(error)
    assert answer.headers.get("retry-after") == retry


@pytest.mark.parametrize("stream", [True, False])
def test_failed_request_says_so_and_hurts_nobody(server: LiveServer, post: Post, stream: bool) -> None:
    server.engine.script = Script([[TOKEN]], end="error", error="the step failed")
    answer = post(PATH, messages=ASK, stream=stream)
    assert "the step failed" in answer.text
    assert "[DONE]" not in answer.text
    server.reset()
    assert post(PATH, messages=ASK).status_code == 200


def test_fault_of_our_own_ends_the_call_with_a_500(server: LiveServer, post: Post) -> None:
    server.engine.script = Script([], reject=ZeroDivisionError("secret prompt text"))
    answer = post(PATH, messages=ASK)
    assert answer.status_code == 500
    assert "secret" not in answer.text


@pytest.mark.parametrize("stream", [True, False])
def test_drain_that_begins_while_a_prompt_is_made_is_a_503(
    server: LiveServer, post: Post, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = server.state.model().text
    encode = text.encode_chat

    def slow(*args: Any, **kwargs: Any) -> list[int]:
        server.state.is_draining = True
        return encode(*args, **kwargs)

    monkeypatch.setattr(text, "encode_chat", slow)
    answer = post(PATH, messages=ASK, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert server.engine.requests == [] and server.state.num_running == 0


def test_full_server_is_a_429_with_retry_after(server: LiveServer, post: Post) -> None:
    server.engine.script = Script([[TOKEN]], first_delay_s=30.0)
    sock = send(server, messages=ASK, n=120)
    wait_until(lambda: server.state.num_running == 120)
    answer = post(PATH, messages=ASK, n=100)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["type"] == "rate_limit_error"
    sock.close()
    wait_until(lambda: server.state.num_running == 0)
    server.reset()
    assert post(PATH, messages=ASK).status_code == 200


def test_more_answers_than_the_server_ever_makes_are_not_told_to_come_again(server: LiveServer, post: Post) -> None:
    """A 429 would have clients try for ever."""
    answer = post("/v1/completions", prompt=["a"] * 101, n=2)
    assert answer.status_code == 400 and "retry-after" not in answer.headers
    assert "202 answers" in answer.json()["error"]["message"] and "at most 200" in answer.json()["error"]["message"]
    assert server.engine.requests == [] and server.state.num_running == 0


@pytest.fixture
def impatient() -> Iterator[LiveServer]:
    """A server with short patience."""
    limits = StreamLimits(max_buffered_chars=1000, slow_client_s=0.3, ping_s=0.1, first_event_s=0.05)
    server = LiveServer(Settings(("tiny",), streams=limits, bounds=Bounds(body_timeout_s=0.2)))
    yield server
    server.stop()


def test_silent_stream_is_kept_open_by_comments(impatient: LiveServer) -> None:
    impatient.engine.script = Script([[TOKEN]], first_delay_s=1.5)
    sock = send(impatient, messages=ASK, stream=True)
    text = read_stream(sock, b"[DONE]").decode()
    sock.close()
    assert text.count(": ping\n\n") >= 3
    assert text.index('"role":"assistant"') < text.index(": ping") < text.index(" and")
    body = text.partition("\r\n\r\n")[2]
    for line in "".join(body.split("\r\n")[1::2]).split("\n\n"):
        assert line == "" or line.startswith(("data: ", ": ping"))


def test_client_that_reads_nothing_is_dropped_and_its_request_with_it(impatient: LiveServer) -> None:
    engine = impatient.reset(max_model_len=10**7)
    engine.script = Script([[TOKEN] * 1000], end=None)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", impatient.port))
    body = json.dumps({"messages": ASK, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    sock.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: bool(engine.aborted), 8.0)
    assert impatient.state.metrics.aborts["slow_client"] == 1
    assert sum(engine.num_steps.values()) < 9000  # it did not run to the end of its ten million tokens
    wait_until(lambda: impatient.state.num_running == 0)
    assert impatient.state.metrics.aborts["client_gone"] == 0
    sock.close()


def test_slow_reader_gets_everything_in_fewer_chunks(server: LiveServer) -> None:
    engine = server.reset(max_model_len=10**6)
    engine.script = Script([[TOKEN] * 20] * 5000)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", server.port))
    body = json.dumps({"messages": ASK, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    sock.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(1.0)
    text = read_stream(sock, b"[DONE]", 5.0)
    sock.close()
    assert text.count(b" and") == 100_000
    assert text.count(b'"content":" and') < 5000


def test_body_that_does_not_come_is_a_408(impatient: LiveServer) -> None:
    sock = socket.create_connection(("127.0.0.1", impatient.port))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    sock.sendall(head)
    answer = read_stream(sock, b"body_timeout")
    assert answer.startswith(b"HTTP/1.1 408")
    sock.close()


def test_client_gone_while_sending_its_body_is_no_fault(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with caplog.at_level("INFO", "octavo.server"):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(head)
            time.sleep(0.05)
        wait_until(lambda: "499" in caplog.text)
    assert "ERROR" not in caplog.text
