"""From a call to the model that it is for: reads the name in the body, and keeps the model loaded until the answer is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from octavo.engine.server.fleet import Fleet, Member
from octavo.engine.server.http import Request, Response, Stream
from octavo.engine.server.routes import Handler


class _Named(msgspec.Struct):
    """The one field that all bodies have."""

    model: str | None = None


_named = msgspec.json.Decoder(_Named)


class Switch:
    """The handler of a path: one of the models' own handlers."""

    def __init__(self, fleet: Fleet, handlers: Mapping[Member, Handler]) -> None:
        self._fleet, self._handlers = fleet, dict(handlers)

    async def __call__(self, request: Request) -> Response | Stream:
        """Answers one call. A body that cannot be read goes to a handler that says what is wrong with it."""
        try:
            name = _named.decode(request.body).model
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return await self._handlers[self._fleet.members[0]](request)
        member = self._fleet.chosen(name, request.path)
        request.served_by = member.name
        await member.begin()
        try:
            answer = await self._handlers[member](request)
        except BaseException:
            member.end()
            raise
        if not isinstance(answer, Stream):
            member.end()
            return answer
        close = answer.close

        async def closed() -> None:
            try:
                await close()
            finally:
                member.end()

        return replace(answer, close=closed)
