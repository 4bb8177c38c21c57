"""The ASGI application: match, authenticate, read, handle, answer. Runs under granian, uvicorn or any ASGI server.

Order, for every request: the path is looked up as sent; the key is checked unless the matched route is public; then 404
and 405; then the body is read within its bounds; then the handler runs. Watched routes are cancelled when the client goes;
one that only ends its sending side is gone too, since the HTTP layer has closed the connection by then (docs/server.md).
Source of the interface: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any

from octavo.engine.errors import OctavoError
from octavo.engine.server.auth import KeyRing
from octavo.engine.server.bounds import Bounds
from octavo.engine.server.http import HttpError, Request, Response, Stream, error_response
from octavo.engine.server.logs import LOG, log_fault
from octavo.engine.server.metrics import Metrics
from octavo.engine.server.routes import Match, Plane, Route, RouteTable

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """One listening socket's application."""

    def __init__(self, table: RouteTable, keys: KeyRing, bounds: Bounds, metrics: Mapping[str, Metrics]) -> None:
        """`metrics` by the name of the model that answers; the first has what no model answers."""
        self._table, self._keys, self._bounds, self._metrics = table, keys, bounds, metrics
        self._usual = next(iter(metrics.values()))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request; lifespan is acknowledged, everything that is not HTTP is refused."""
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def admit(self, method: str, raw_path: bytes, authorization: bytes) -> tuple[Match, bytes]:
        """The match of a request that may pass, and its tenant; 401 before 404 and 405."""
        match = self._table.match(method, raw_path)
        if match.route is not None and match.route.plane is Plane.PUBLIC:
            return match, b""
        return match, self._keys.tenant(authorization)


class _Exchange:
    """One request and its answer."""

    def __init__(self, app: App, scope: Message, receive: Receive, send: Send) -> None:
        self._app, self._scope, self._receive, self._send = app, scope, receive, send
        self._started = time.monotonic()
        self._status = 0
        self._is_sent = False
        self._route: Route | None = None
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), value)
        self._request = Request(os.urandom(16).hex(), scope["method"], headers)

    async def run(self) -> None:
        """Answers, whatever happens."""
        try:
            await self._answer()
        except (ConnectionError, asyncio.CancelledError):
            if self._status == 0:
                self._status = 499  # the client went before the answer began
        except Exception as error:
            if not isinstance(error, OctavoError):
                log_fault(error, self._request.id)
            if self._status == 0:
                await self._respond(error_response(error, self._request.id))
        self._account()

    async def _answer(self) -> None:
        scope, request = self._scope, self._request
        raw_path = scope.get("raw_path") or scope["path"].encode()
        path = raw_path.partition(b"?")[0]
        match, request.tenant = self._app.admit(request.method, path, request.headers.get(b"authorization", b""))
        route = self._route = match.route
        if route is None:
            raise _no_route(request.method, match)
        request.path_arg, request.path = match.arg, route.path
        if route.max_body_bytes:
            request.body = await self._read_body(route.max_body_bytes)
        if route.is_watched:
            await self._watched(route)
        else:
            await self._respond(await route.handler(request))

    async def _read_body(self, max_bytes: int) -> bytes:
        headers = self._request.headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            message = f"the content type is {kind.decode('latin-1')[:60] or 'missing'}; send application/json"
            raise HttpError(415, message, code="unsupported_media_type")
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > max_bytes:
            raise _too_large(max_bytes)
        try:
            return await asyncio.wait_for(self._collect(max_bytes), self._app._bounds.body_timeout_s)
        except asyncio.TimeoutError:
            message = f"the body did not arrive within {self._app._bounds.body_timeout_s:g} s"
            raise HttpError(408, message, code="body_timeout") from None

    async def _collect(self, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("the client went while sending")
            part = message.get("body", b"")
            size += len(part)
            if size > max_bytes:
                raise _too_large(max_bytes)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _watched(self, route: Route) -> None:
        """Runs the handler and its answer, and cancels both when the client goes."""
        work = asyncio.ensure_future(self._handle(route))
        gone = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done() and not self._is_sent:
                work.cancel()
            await asyncio.wait((work,))
        await work

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _handle(self, route: Route) -> None:
        answer = await route.handler(self._request)
        if isinstance(answer, Stream):
            await self._stream(answer)
        else:
            await self._respond(answer)

    async def _respond(self, response: Response | Stream) -> None:
        if isinstance(response, Stream):
            await self._stream(response)
            return
        length = (b"content-length", b"%d" % len(response.body))
        await self._begin(response.status, [(b"content-type", response.content_type), length, *response.headers])
        self._is_sent = True
        await self._send({"type": "http.response.body", "body": response.body, "more_body": False})

    async def _stream(self, stream: Stream) -> None:
        try:
            no_cache = (b"cache-control", b"no-cache")
            await self._begin(200, [(b"content-type", stream.content_type), no_cache, *stream.headers])
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._is_sent = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await stream.close()

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        headers.append((b"x-request-id", self._request.id.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _account(self) -> None:
        """One log line and one count; the route's pattern stands for the path, so nothing a client wrote is kept."""
        name = self._route.path if self._route is not None else "unmatched"
        metrics = self._app._metrics.get(self._request.served_by, self._app._usual)
        metrics.count_response(name, self._status)
        notes = "".join(f" {key}={value}" for key, value in self._request.notes.items())
        took_ms = (time.monotonic() - self._started) * 1e3
        LOG.info("%s %s %d %.1fms%s", self._request.id, name, self._status, took_ms, notes)


def _no_route(method: str, match: Match) -> HttpError:
    if match.allowed:
        allowed = ", ".join(match.allowed)
        headers = [(b"allow", allowed.encode())]
        return HttpError(405, f"this path takes {allowed}", code="method_not_allowed", headers=headers)
    return HttpError(404, "there is no such path; paths are exact, without trailing slashes", code="not_found")


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"the body is larger than {max_bytes} bytes; send less", code="body_too_large")
