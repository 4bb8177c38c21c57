"""The route table: which method and path reach which handler, on which plane, with how large a body.

Invariants: a route names its plane or cannot be made; nothing is served that is not in the table; paths match byte for
byte as sent (no decoding, no folding of slashes, case or trailing slashes), so a path has exactly one spelling; whether a
key is needed is read off the matched route, and an unmatched path needs one too.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from octavo.engine.errors import ConfigError
from octavo.engine.server.http import Request, Response, Stream

Handler = Callable[[Request], Awaitable["Response | Stream"]]


class Plane(enum.Enum):
    """Who may call: anyone, the holder of a key, or the operator on the admin socket."""

    PUBLIC = "public"
    TENANT = "tenant"
    ADMIN = "admin"


@dataclass(frozen=True)
class Route:
    """One row. `is_watched`: a vanished client cancels the handler (set for everything that runs the model)."""

    method: str
    path: str  # exact, or ending in /{name}: the rest of the path, slashes included
    plane: Plane
    handler: Handler
    max_body_bytes: int = 0
    is_watched: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.plane, Plane):
            raise ConfigError(f"route {self.method} {self.path}: plane is {self.plane!r}; say public, tenant or admin")
        if not self.path.startswith("/"):
            raise ConfigError(f"route {self.method} {self.path}: a path starts with /")


@dataclass(frozen=True)
class Match:
    """Outcome of a look-up: a route with its argument, or the methods that the path would take (empty: unknown)."""

    route: Route | None
    arg: str = ""
    allowed: tuple[str, ...] = ()


class RouteTable:
    """All routes of one listening socket. Admin routes are only served where `planes` has them."""

    def __init__(self, routes: Iterable[Route], planes: frozenset[Plane] = frozenset({Plane.PUBLIC, Plane.TENANT})):
        self.routes = tuple(route for route in routes if route.plane in planes)
        self._exact: dict[bytes, dict[str, Route]] = {}
        self._prefix: dict[bytes, dict[str, Route]] = {}
        for route in self.routes:
            stem, brace, _ = route.path.partition("{")
            rows = (self._prefix if brace else self._exact).setdefault(stem.encode(), {})
            if route.method in rows:
                raise ConfigError(f"route {route.method} {route.path} is given twice")
            rows[route.method] = route

    def match(self, method: str, raw_path: bytes) -> Match:
        """Looks up a path as it was sent, without its query. HEAD takes the GET row."""
        rows, arg = self._exact.get(raw_path), b""
        if rows is None:
            for stem, candidates in self._prefix.items():
                if raw_path.startswith(stem) and len(raw_path) > len(stem):
                    rows, arg = candidates, raw_path[len(stem) :]
                    break
        if rows is None:
            return Match(None)
        route = rows.get("GET" if method == "HEAD" else method)
        if route is None:
            return Match(None, allowed=tuple(rows))
        return Match(route, unquote_to_bytes(arg).decode("utf-8", "replace"))
