"""Every error the engine raises on purpose.

One line each: what was asked for, what was found, what is allowed, what to do. Tree:

    OctavoError
    ├── RequestError      the caller's request is wrong: HTTP 4xx; carries `param` and `code`
    │   ├── TooLargeError     it can never fit (context length, KV pool): 400
    │   ├── InternalError     it is not, but could not be taken for a reason of our own: 500
    │   └── OverloadedError   it could run later: 429 with `retry_after_s`
    │       └── ShuttingDownError     it could run elsewhere: 503; this server or engine is ending
    ├── ModelError        a model folder, file, tensor or tokenizer cannot be used
    │   └── FormatError       a file breaks its own format: carries `field` and byte `offset`
    ├── PlatformError     no kernel, a refused level, a failed self-test
    ├── ConfigError       an option or environment variable has a value it must not have
    └── EngineDeadError   the engine process ended; every open request gets this
"""

from __future__ import annotations

import traceback


class OctavoError(Exception):
    """Base of all errors raised on purpose; `str(error)` is the one line a user sees."""


class RequestError(OctavoError):
    """A bad request. `param` names the field, `code` is a stable machine-readable word, `status` the HTTP status."""

    status = 400

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class TooLargeError(RequestError):
    """The request can never fit: longer than the model's context or than the whole KV pool."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "context_length_exceeded") -> None:
        super().__init__(message, param=param, code=code)


class InternalError(RequestError):
    """The request could not be taken for a reason that is a fault of the engine; its log has more."""

    status = 500

    def __init__(self, message: str, *, param: str | None = None, code: str = "engine_error") -> None:
        super().__init__(message, param=param, code=code)


class OverloadedError(RequestError):
    """The request could run, but not now. `retry_after_s` is a hint in seconds."""

    status = 429

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str = "overloaded") -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class ShuttingDownError(OverloadedError):
    """The request could run, but not here any more: the server, or its engine, is ending."""

    status = 503

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str = "shutting_down") -> None:
        super().__init__(message, retry_after_s=retry_after_s, code=code)


class ModelError(OctavoError):
    """A model folder, file, tensor, configuration or tokenizer cannot be used."""


class FormatError(ModelError):
    """A file breaks its own format. `field` names what was being read, `offset` is in bytes from the file start."""

    def __init__(self, message: str, *, field: str = "", offset: int | None = None) -> None:
        where = f" (field {field!r}" + (f", offset {offset})" if offset is not None else ")") if field else ""
        super().__init__(message + where)
        self.field = field
        self.offset = offset


class PlatformError(OctavoError):
    """No runnable kernel or platform; the text lists every refusal with its reason."""


class ConfigError(OctavoError):
    """An option or an environment variable has a value it must not have."""


class EngineDeadError(OctavoError):
    """The engine process is gone; the text says how it ended."""


def trace_of(error: BaseException) -> str:
    """An unexpected exception for a log: its type and the places it passed through, innermost first. Without its message,
    which may quote what a user sent."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {where}"
