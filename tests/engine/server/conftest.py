"""A real HTTP server (granian on a real socket) in a thread, with a scripted engine behind it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.engine.server.fakes import FakeEngine, fleet_of, make_text

from octavo.engine.server.api import make_app
from octavo.engine.server.binding import bind_tcp
from octavo.engine.server.serving import HttpServer
from octavo.engine.server.state import ServerState, Settings


class LiveServer:
    """The server under test. `engine` is the current fake; `reset()` puts a fresh one in place."""

    def __init__(self, settings: Settings, keys: tuple[str, ...] = ()) -> None:
        self.loop = asyncio.new_event_loop()
        self.sock = bind_tcp("127.0.0.1", 0)
        self.port: int = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = ServerState(settings)
        self.engine = FakeEngine()
        self._http = HttpServer(make_app(fleet_of(self.state), keys), self.sock)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        for _ in range(500):
            try:
                httpx.get(self.url + "/live", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.005)
        self.reset()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._http.start)
        self.loop.run_forever()

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs `function` in the server's loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(5)

    def reset(self, **info: Any) -> FakeEngine:
        """A fresh engine behind the same server; `info` changes fields of its EngineInfo."""

        def make() -> FakeEngine:
            engine = FakeEngine()
            engine.info = msgspec.structs.replace(engine.info, **info)
            self.state.attach(engine, make_text())
            self.state.is_warm, self.state.is_draining = True, False
            return engine

        self.engine = self.call(make)
        return self.engine

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._http.stop(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


@pytest.fixture(scope="session")
def live_server() -> Iterator[LiveServer]:
    server = LiveServer(Settings(("tiny", "org/alias"), max_running=200))
    yield server
    server.stop()


@pytest.fixture
def server(live_server: LiveServer) -> LiveServer:
    """The shared server with a fresh engine."""
    live_server.reset()
    return live_server


@pytest.fixture(scope="session")
def http_session() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=10) as client:
        yield client


@pytest.fixture
def post(server: LiveServer, http_session: httpx.Client) -> Callable[..., httpx.Response]:
    """post(path, **body): a JSON call."""

    def call(path: str, **body: Any) -> httpx.Response:
        return http_session.post(server.url + path, json=body)

    return call


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Seconds until the condition held; fails after the timeout."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"not within {timeout_s} s")
        time.sleep(0.005)
    return time.monotonic() - started


def is_listening(path: Path) -> bool:
    """True when a Unix socket takes connections (asked with a plain socket: httpx leaks one at every refusal)."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
