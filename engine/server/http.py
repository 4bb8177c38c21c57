"""The HTTP vocabulary of the server: Request, Response, Stream and errors in OpenAI's shape.

Nothing here knows of models. A handler takes a Request and returns a Response, or a Stream whose chunks are written as
they come. Every error leaves as `{"error": {"message", "type", "param", "code"}}`.
Source of the error shape: https://platform.openai.com/docs/guides/error-codes.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.engine.errors import EngineDeadError, OverloadedError, RequestError

Headers = list[tuple[bytes, bytes]]
JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"


class HttpError(RequestError):
    """A RequestError with its own HTTP status and headers."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str, headers: Headers | None = None
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status
        self.headers: Headers = headers or []


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> HttpError:
    """A 400 naming the field."""
    return HttpError(400, message, param=param, code=code)


def unavailable(message: str, code: str, retry_after_s: float = 1.0) -> HttpError:
    """A 503 that says when to come back."""
    return HttpError(503, message, code=code, headers=[(b"retry-after", retry_after(retry_after_s))])


def retry_after(seconds: float) -> bytes:
    """The Retry-After header: whole seconds, at least one."""
    return str(max(1, math.ceil(seconds))).encode()


@dataclass
class Request:
    """One HTTP request, its body already read. `path_arg` is the decoded rest of a `/{name}` route."""

    id: str
    method: str
    headers: Mapping[bytes, bytes]
    body: bytes = b""
    path_arg: str = ""
    path: str = ""  # the route's
    served_by: str = ""  # name of the model that answers, where that is known
    tenant: bytes = b""  # digest of the API key that was used; empty without keys
    notes: dict[str, int] = field(default_factory=dict)  # numbers for the access log line


@dataclass
class Response:
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = field(default_factory=list)


@dataclass
class Stream:
    """An answer in chunks (server-sent events). `close` is awaited whatever happens to the connection."""

    chunks: AsyncGenerator[bytes, None]
    close: Callable[[], Awaitable[None]]
    content_type: bytes = EVENT_STREAM
    headers: Headers = field(default_factory=list)


def json_response(value: Any, status: int = 200, headers: Headers | None = None) -> Response:
    """Any msgspec-encodable value as JSON."""
    return Response(msgspec.json.encode(value), status, JSON, headers or [])


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_object(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    """OpenAI's error object for one failure."""
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def describe(error: BaseException, request_id: str) -> tuple[int, dict[str, Any], Headers]:
    """Status, error object and headers of any exception; unexpected ones say nothing of their cause."""
    if isinstance(error, RequestError):
        headers: Headers = list(error.headers) if isinstance(error, HttpError) else []
        if isinstance(error, OverloadedError):
            headers.append((b"retry-after", retry_after(error.retry_after_s)))
        return error.status, error_object(error.status, str(error), error.param, error.code), headers
    if isinstance(error, EngineDeadError):
        return 503, error_object(503, f"the engine is gone: {error}", None, "engine_dead"), []
    message = f"internal error; the server's log has it under request {request_id}"
    return 500, error_object(500, message, None, "internal_error"), []


def error_response(error: BaseException, request_id: str) -> Response:
    """The exception as an answer."""
    status, body, headers = describe(error, request_id)
    return json_response(body, status, headers)
