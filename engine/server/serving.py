"""The life of a server process: bind, answer while the model loads, serve, drain, end.

granian (HTTP in Rust) is embedded in this process' event loop and speaks ASGI: that interface has a bounded queue per
response, so a slow client holds its handler back, where its RSGI interface would buffer without end (both were tried). The
socket is bound here, first, so that a taken port is found before a model is loaded and two servers cannot share one.
SIGTERM or SIGINT drains: `/ready` and new work answer 503, running answers finish within `drain_s` or end with an error that
says so, exit 0. A second signal ends at once, exit 1. Times in seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.engine.server.app import App
from octavo.engine.server.fleet import Fleet
from octavo.engine.server.logs import LOG

BACKLOG = 2048
HEADER_TIMEOUT_MS = 30_000
_POLL_S = 0.02
_FAREWELL_S = 1.0  # clients are told, and the engine outlives the drain: its deadline is kept here


class HttpServer:
    """granian around an App on a bound socket."""

    def __init__(self, app: App, sock: socket.socket) -> None:
        self._app, self._sock = app, sock
        self._unix_path = Path(sock.getsockname()) if sock.family == socket.AF_UNIX else None
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to answer."""
        from granian import net
        from granian.constants import HTTPModes, Interfaces
        from granian.http import HTTP1Settings
        from granian.server.embed import Server

        make_holder: Any = net.SocketHolder  # type: ignore[attr-defined]
        is_unix = self._unix_path is not None
        if sys.platform.startswith("linux"):
            holder = make_holder(self._sock.detach(), is_unix, BACKLOG)
        else:  # elsewhere the holder takes a listening socket
            self._sock.listen(BACKLOG)
            holder = make_holder(self._sock.detach(), is_unix)

        class Embedded(Server):
            def _init_shared_socket(self) -> None:
                self._ssp: Any = None
                self._shd: Any = holder

        self._server = Embedded(
            self._app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS),
            websockets=False,
            backlog=BACKLOG,
            log_enabled=False,
        )
        self._task = asyncio.ensure_future(self._server.serve())

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        if self._task is not None:
            self._server.stop()
            await self._task
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)
        self._sock.close()  # granian owns the socket once it has started; this is for a server that never did


class Lifecycle:
    """Runs one server from start to exit code."""

    def __init__(self, fleet: Fleet, app: App, sock: socket.socket, drain_s: float) -> None:
        self._fleet, self._drain_s = fleet, drain_s
        self._http = HttpServer(app, sock)
        self._num_signals = 0
        self._signalled = asyncio.Event()
        self._hurried = asyncio.Event()

    def _on_signal(self) -> None:
        self._num_signals += 1
        (self._signalled if self._num_signals == 1 else self._hurried).set()

    async def run(self, on_ready: Callable[[dict[str, float]], None]) -> int:
        """Serves until a signal; returns the exit code. Models load in parallel with the HTTP side; `on_ready` gets the
        seconds of each phase."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        started = time.monotonic()
        loading = asyncio.ensure_future(self._fleet.start())
        await asyncio.sleep(0)  # the engine process is on its way before this one imports its HTTP side
        self._http.start()
        http_s = time.monotonic() - started
        signalled = asyncio.ensure_future(self._signalled.wait())
        try:
            await asyncio.wait((loading, signalled), return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                loading.cancel()
                await asyncio.wait((loading,))
                return 0
            on_ready({"http": http_s, **loading.result()})
            await signalled
            return await self._drain()
        finally:
            signalled.cancel()
            await self._fleet.close()
            await self._http.stop()

    async def _drain(self) -> int:
        """Lets running answers finish; whatever is left then is told that the server is shutting down."""
        fleet = self._fleet
        for member in fleet.members:
            member.state.is_draining = True
        LOG.info("draining: %d answers in the making, at most %g s", fleet.num_running, self._drain_s)
        told = asyncio.ensure_future(fleet.drain(self._drain_s + _FAREWELL_S))
        deadline = time.monotonic() + self._drain_s
        while fleet.num_running and time.monotonic() < deadline and not self._hurried.is_set():
            await asyncio.sleep(_POLL_S)
        told.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await told
        if fleet.num_running:
            LOG.warning("ending %d answers that did not finish in time", fleet.num_running)
            for member in fleet.members:
                member.state.metrics.aborts["shutdown"] += member.state.num_running
                member.state.end_runs()
            until = time.monotonic() + _FAREWELL_S
            while fleet.num_running and time.monotonic() < until:
                await asyncio.sleep(_POLL_S)
        return 1 if self._hurried.is_set() else 0
