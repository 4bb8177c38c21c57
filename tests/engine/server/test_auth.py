"""Keys and routes: nothing but liveness answers without a key, whatever the spelling of the path."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.fakes import fleet_of

from octavo.engine.errors import ConfigError
from octavo.engine.server.api import make_routes
from octavo.engine.server.auth import KeyRing
from octavo.engine.server.http import HttpError, Request, Response, json_response
from octavo.engine.server.routes import Plane, Route, RouteTable
from octavo.engine.server.state import ServerState, Settings

KEYS = ("first-key", "second-key")
PUBLIC = {"/live", "/health", "/ready"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
ROUTES = [route.path.replace("{name}", "tiny") for route in make_routes(fleet_of(ServerState(Settings(("tiny",)))))]
WRONG = [None, "wrong-key", "first-ke", "first-keyy", "", "FIRST-KEY", "first-key,second-key", "\xff"]


@pytest.fixture(scope="module")
def locked() -> Iterator[LiveServer]:
    server = LiveServer(Settings(("tiny",)), KEYS)
    yield server
    server.stop()


def status(server: LiveServer, method: str, path: str, authorization: str | None, body: bytes = b"{}") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    headers = {"Content-Type": "application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def spellings(path: str) -> list[str]:
    """Other ways to write a path, and paths near it."""
    encoded = "/" + "".join(f"%{ord(char):02x}" for char in path[1:])
    return [
        path,
        "/" + path,
        path.upper(),
        path + "/",
        encoded,
        path.replace("/", "%2f")[3:] and "/" + path[1:].replace("/", "%2f"),
        path + "?x=1",
        path + ";x",
        "/x/.." + path,
        "/." + path,
        path + "%00",
        path + "#f",
        path.replace("/", "\\", 1).replace("\\", "/\\"),
        f"http://other{path}",
    ]


@pytest.mark.parametrize("path", sorted(set(ROUTES)))
def test_without_a_valid_key_only_liveness_answers(locked: LiveServer, path: str) -> None:
    for method in METHODS:
        for spelling in spellings(path):
            got = status(locked, method, spelling, None)
            is_public = spelling.partition("?")[0] in PUBLIC and method in ("GET", "HEAD")
            is_public = is_public or (
                spelling == f"http://other{path}" and path in PUBLIC and method in ("GET", "HEAD")
            )
            is_public = is_public or (spelling == path + "#f" and path in PUBLIC and method in ("GET", "HEAD"))
            assert got == (200 if is_public else 401), (method, spelling, got)
    assert locked.engine.requests == []


@pytest.mark.parametrize("key", WRONG)
def test_wrong_keys_of_any_length_are_refused(locked: LiveServer, key: str | None) -> None:
    authorization = None if key is None else f"Bearer {key}"
    for path in ROUTES:
        if path not in PUBLIC:
            assert status(locked, "GET", path, authorization) == 401
            assert status(locked, "POST", path, authorization) == 401


@pytest.mark.parametrize("authorization", ["Basic first-key", "first-key", "Bearer", "Bearer  ", "Bearerfirst-key"])
def test_other_schemes_are_refused(locked: LiveServer, authorization: str) -> None:
    assert status(locked, "GET", "/v1/models", authorization) == 401


@pytest.mark.parametrize("key", KEYS)
def test_every_configured_key_opens(locked: LiveServer, key: str) -> None:
    assert status(locked, "GET", "/v1/models", f"Bearer {key}") == 200
    assert status(locked, "GET", "/v1/models", f"bearer {key}") == 200
    assert status(locked, "GET", "/nothing", f"Bearer {key}") == 404
    assert status(locked, "GET", "/V1/models", f"Bearer {key}") == 404
    assert status(locked, "GET", "//v1/models", f"Bearer {key}") == 404
    assert status(locked, "GET", "/v1/models/", f"Bearer {key}") == 404
    assert status(locked, "DELETE", "/v1/models", f"Bearer {key}") == 405


def test_tenants_have_salts_of_their_own(locked: LiveServer) -> None:
    body = b'{"prompt":"a"}'
    for key in KEYS:
        assert status(locked, "POST", "/v1/completions", f"Bearer {key}", body) == 200
    first, second = (request.salt for request in locked.engine.requests[-2:])
    assert first and second and first != second


async def _handler(request: Request) -> Response:
    return json_response({})


def test_route_without_a_plane_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        Route("GET", "/x", handler=_handler)  # type: ignore[call-arg]
    for plane in (None, "public", True):
        with pytest.raises(ConfigError, match="plane"):
            Route("GET", "/x", plane, _handler)  # type: ignore[arg-type]


def test_only_liveness_is_public() -> None:
    routes = make_routes(fleet_of(ServerState(Settings(("tiny",)))))
    assert {route.path for route in routes if route.plane is Plane.PUBLIC} == PUBLIC


def test_admin_routes_are_not_on_the_public_socket() -> None:
    table = RouteTable([Route("POST", "/admin/x", Plane.ADMIN, _handler)])
    assert table.match("POST", b"/admin/x").route is None
    assert table.match("POST", b"/admin/x").allowed == ()
    admin = RouteTable([Route("POST", "/admin/x", Plane.ADMIN, _handler)], frozenset({Plane.ADMIN}))
    assert admin.match("POST", b"/admin/x").route is not None


def test_a_route_given_twice_is_an_error() -> None:
    route = Route("GET", "/x", Plane.PUBLIC, _handler)
    with pytest.raises(ConfigError, match="twice"):
        RouteTable([route, route])


def test_keys_are_compared_as_digests_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def spy(one: bytes, two: bytes) -> bool:
        seen.append((one, two))
        return one == two

    monkeypatch.setattr("octavo.engine.server.auth.hmac.compare_digest", spy)
    ring = KeyRing(KEYS)
    ring.tenant(b"Bearer first-key")
    with pytest.raises(HttpError):
        ring.tenant(b"Bearer x")
    assert len(seen) == 4  # every key, on every attempt, found or not
    assert all(len(one) == len(two) == 32 for one, two in seen)
    assert not any(key in repr(vars(ring)) for key in KEYS)


@pytest.mark.parametrize("key", ["", " x", "x\n"])
def test_keys_that_could_never_match_are_refused_at_start(key: str) -> None:
    with pytest.raises(ConfigError):
        KeyRing([key])
