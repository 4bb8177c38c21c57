"""The models of a server: which of them a call is for, and their lives, loaded at the start or when somebody asks, unloaded when
nobody has for a while.

A call names its model; without a name it is for the one that answers such calls. Each model has an engine process, a state and
endpoints of its own, and knows nothing of the others. Invariants: a model is loaded and unloaded by one task at a time, whose
waiters may go; it is never unloaded while a call uses it; a load that fails costs those who waited for it, and the next call
tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from octavo.engine.errors import ConfigError, EngineDeadError, OctavoError
from octavo.engine.server.http import HttpError, bad_request, unavailable
from octavo.engine.server.logs import LOG
from octavo.engine.server.state import ServerState
from octavo.engine.server.status import warm_up

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText
    from octavo.engine.models.kind import Kind
    from octavo.engine.server.engine_api import Engine

Load = Callable[[], Awaitable[tuple["Engine", "ModelText"]]]

_VECTORS = frozenset({"/v1/embeddings", "/pooling", "/v2/embed", "/embed", "/embed_all", "/embed_sparse"})
_SCORES = frozenset({"/v1/rerank", "/v2/rerank", "/rerank", "/score", "/classify", "/predict", "/pooling"})
#: what models of a kind answer; all of them take /tokenize and /detokenize
ANSWERS: dict[Kind, frozenset[str]] = {
    "generate": frozenset({"/v1/chat/completions", "/v1/completions"}),
    "embed": _VECTORS,
    "sequence": _SCORES,
    "token": frozenset({"/pooling"}),
}
_ANY = frozenset({"/tokenize", "/detokenize"})


class Member:
    """One model. `load` starts its engine; `is_on_demand`: when a call first needs it. `unload_s`: after so many seconds
    without a call it is unloaded, None: never."""

    def __init__(
        self,
        state: ServerState,
        load: Load,
        *,
        kind: Kind = "generate",
        is_on_demand: bool = False,
        unload_s: float | None = None,
    ) -> None:
        self.state, self.kind = state, kind
        self.is_on_demand = is_on_demand
        self._load, self._unload_s = load, unload_s
        self._change: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.num_calls = 0

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.state.settings.served_names[0]

    @property
    def comes_back(self) -> bool:
        """A call loads it if it is not there."""
        return self.is_on_demand or self._unload_s is not None

    def answers(self, path: str) -> bool:
        """Whether its kind of model takes calls of a path."""
        return path in ANSWERS[self.kind] or path in _ANY

    async def begin(self) -> None:
        """A call needs the model: brings it if it comes on demand. `end` must follow, unless this raises."""
        self.num_calls += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if self.comes_back and not self.state.is_draining:
                await self._brought()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """The call is over."""
        self.num_calls -= 1
        self._rest()

    async def load(self) -> dict[str, float]:
        """Loads and tries the model; the seconds of both. What goes wrong is raised."""
        started = time.monotonic()
        engine, text = await self._load()
        loaded_s = time.monotonic() - started
        try:
            self.state.attach(engine, text)
            first_s = await warm_up(self.state)
        except BaseException:
            self.state.detach()
            await engine.close()
            raise
        self._rest()
        return {"load": loaded_s, "first_token": first_s}

    async def unload(self) -> None:
        """Ends the engine, and with it everything that the model takes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        engine = self.state.detach()
        if engine is not None:
            await engine.close()

    async def settled(self) -> None:
        """Waits for what changes now, whatever comes of it."""
        if self._change is not None:
            await asyncio.gather(self._change, return_exceptions=True)

    async def _brought(self) -> None:
        while True:
            if self._change is not None:
                await asyncio.shield(self._change)
            elif self.state.engine is not None and not self.state.is_engine_dead:
                return
            else:
                self._start(self._bring())

    async def _bring(self) -> None:
        await self.unload()  # what is left of an engine that died
        LOG.info("loading %s", self.name)
        try:
            await self.load()
        except OctavoError as error:
            LOG.error("%s cannot be loaded: %s", self.name, error)
            raise unavailable(f"{self.name} cannot be loaded: {error}", "loading", 5.0) from error

    def _start(self, change: Awaitable[None]) -> None:
        """Runs `change`, which nothing else overlaps."""

        async def run() -> None:
            try:
                await change
            finally:
                self._change = None  # before the task is over, so that who waited for it does not find it again

        task = self._change = asyncio.ensure_future(run())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waited, it is in the log

    def _rest(self) -> None:
        """Counts the time without calls, where that matters."""
        if self._unload_s is not None and not self.num_calls and self._timer is None and self.state.engine is not None:
            self._timer = asyncio.get_running_loop().call_later(self._unload_s, self._idle)

    def _idle(self) -> None:
        self._timer = None
        if not self.num_calls and self._change is None and not self.state.is_draining:
            LOG.info("unloading %s: no call for %g s", self.name, self._unload_s)
            self._start(self.unload())


class Fleet:
    """All models of a server, in order. ConfigError for names that two of them have."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._named: dict[str, Member] = {}
        for member in self.members:
            for name in member.state.settings.served_names:
                if name in self._named:
                    raise ConfigError(f"two models are called {name}; name them apart: NAME=MODEL")
                self._named[name] = member

    @property
    def names(self) -> list[str]:
        """All names, of the models in order."""
        return list(self._named)

    def named(self, name: str) -> Member:
        """A model by its name, or a 404."""
        if name not in self._named:
            message = f"the model {name[:100]!r} is not served here; served: {', '.join(self._named)}"
            raise HttpError(404, message, param="model", code="model_not_found")
        return self._named[name]

    def chosen(self, name: str | None, path: str) -> Member:
        """Whom a call is for."""
        if name is not None:
            return self.named(name)
        if len(self.members) == 1:
            return self.members[0]
        fitting = [member for member in self.members if member.answers(path)]
        if not fitting and path == "/score":  # which models of vectors answer too, where there is no reranker
            fitting = [member for member in self.members if member.kind == "embed"]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(member.name for member in fitting or self.members)
        if fitting:
            raise bad_request(f"{path}: which model? Name one of {names}", "model", "missing_field")
        raise HttpError(400, f"{path}: none of the models answers it; served: {names}", code="unsupported_endpoint")

    @property
    def num_running(self) -> int:
        """Answers in the making."""
        return sum(member.state.num_running for member in self.members)

    async def start(self) -> dict[str, float]:
        """Loads those that do not wait for a call, side by side; seconds by phase. The first failure ends the others."""
        first = [member for member in self.members if not member.is_on_demand]
        loads = [asyncio.ensure_future(member.load()) for member in first]
        try:
            found = await asyncio.gather(*loads)
        except BaseException:
            for one in loads:
                one.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
            raise
        if len(self.members) == 1:
            return found[0] if found else {}
        return {
            f"{member.name}.{phase}": seconds
            for member, phases in zip(first, found, strict=True)
            for phase, seconds in phases.items()
        }

    async def drain(self, deadline_s: float) -> None:
        """As `Engine.drain`, of all that are loaded."""
        engines = [member.state.engine for member in self.members]
        drains = [engine.drain(deadline_s) for engine in engines if engine is not None]
        for found in await asyncio.gather(*drains, return_exceptions=True):
            if isinstance(found, BaseException) and not isinstance(found, EngineDeadError):
                raise found

    async def close(self) -> None:
        """Ends every engine."""
        for member in self.members:
            await member.settled()
            await member.unload()
