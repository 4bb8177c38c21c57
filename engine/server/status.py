"""What the server says of itself: /health, /live, /ready, /version, /v1/models, /metrics.

live: the HTTP side answers. health: no engine that was there has gone for good. ready: a real one-token pass has come through the
whole path of every model that does not come on demand, and the server is not draining.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from octavo import __version__
from octavo.engine.errors import EngineDeadError
from octavo.engine.messages import AddItems, AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.http import Request, Response, json_response, unavailable
from octavo.engine.server.metrics import merged
from octavo.engine.server.state import ServerState
from octavo.engine.server.tei import info_of

if TYPE_CHECKING:
    from octavo.engine.server.fleet import Fleet

_STATS_TIMEOUT_S = 1.0


async def warm_up(state: ServerState) -> float:
    """Runs one token through engine and text layer; returns the seconds it took and opens /ready."""
    model = state.model()
    started = time.monotonic()
    info = model.engine.info
    if info.pooling is not None:
        await _first_item(model.engine, info.pooling.tasks[0])
        state.is_warm = True
        return time.monotonic() - started
    token = min(info.eos_ids[0] if info.eos_ids else 0, info.vocab_size - 1)
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    request = AddRequest("warm-up", [token], params, arrival_s=started)
    stream = model.text.open_stream(params)
    async for out in model.engine.submit(request):
        stream.push(out.tokens)
        if out.finish_reason in ("error", "abort"):
            raise EngineDeadError(f"the one-token pass failed: {out.error or out.finish_reason}")
    state.is_warm = True
    return time.monotonic() - started


async def _first_item(engine: Engine, task: str) -> None:
    """One text of one token through an engine that gives vectors."""
    with engine.open_items("warm-up") as items:
        items.send(AddItems("warm-up", task, 0, bytes(4), (1).to_bytes(4, "little")))
        for output in await items.next():
            if output.error:
                raise EngineDeadError(f"the pass of one text failed: {output.error}")


def _pooling_card(engine: Engine | None) -> dict[str, object]:
    """What a model that gives vectors is besides."""
    pooling = engine.info.pooling if engine is not None else None
    if pooling is None:
        return {}
    return {
        "tasks": pooling.tasks,
        "prompts": pooling.prompts,
        **(
            {"labels": pooling.labels}
            if pooling.labels
            else {"dimensions": pooling.truncate_dim or pooling.width, "similarity": pooling.similarity}
        ),
    }


class StatusEndpoints:
    """The handlers."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def live(self, request: Request) -> Response:
        """200 as long as this process answers."""
        return json_response({"status": "alive"})

    async def health(self, request: Request) -> Response:
        """503 once an engine has ended that nothing brings back, else 200 (while loading too: nothing is wrong then)."""
        for member in self._fleet.members:
            if member.state.is_engine_dead and not member.comes_back:
                which = "" if len(self._fleet.members) == 1 else f" of {member.name}"
                raise unavailable(f"the engine{which} ended; restart the server", "engine_dead", 10.0)
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 when requests will be answered now, by models that come on demand after they have been loaded."""
        for member in self._fleet.members:
            if member.state.is_draining or not member.comes_back:
                member.state.model()
                if not member.state.is_warm:
                    raise unavailable("the first pass through the model has not come back yet", "loading")
        return json_response({"status": "ready"})

    async def version(self, request: Request) -> Response:
        """The version of this package."""
        return json_response({"version": __version__})

    def _card(self, name: str) -> dict[str, object]:
        member = self._fleet.named(name)
        engine = member.state.engine
        return {
            "id": name,
            "object": "model",
            "created": member.state.created,
            "owned_by": "octavo",
            "max_model_len": engine.info.max_model_len if engine is not None else None,
            **({"is_loaded": engine is not None} if member.comes_back else {}),
            **_pooling_card(engine),
        }

    async def models(self, request: Request) -> Response:
        """The served names."""
        return json_response({"object": "list", "data": [self._card(name) for name in self._fleet.names]})

    async def model(self, request: Request) -> Response:
        """One served name."""
        return json_response(self._card(request.path_arg))

    async def info(self, request: Request) -> Response:
        """text-embeddings-inference's GET /info; of several models those that are loaded, as `models`."""
        members = self._fleet.members
        if len(members) == 1:
            return json_response(info_of(members[0].state))
        return json_response(
            {"models": [info_of(member.state) for member in members if member.state.engine is not None]}
        )

    async def metrics(self, request: Request) -> Response:
        """Prometheus text; without an engine's part when it does not answer within a second."""
        texts = await asyncio.gather(*(_metrics_of(member.state) for member in self._fleet.members))
        text = texts[0] if len(texts) == 1 else merged(texts)
        return Response(text.encode(), 200, b"text/plain; version=0.0.4; charset=utf-8")


async def _metrics_of(state: ServerState) -> str:
    """One model's."""
    stats: dict[str, float] = {}
    engine = state.engine
    is_up = engine is not None and engine.is_alive
    if engine is not None and is_up:
        try:
            stats = await asyncio.wait_for(engine.stats(), _STATS_TIMEOUT_S)
        except (EngineDeadError, asyncio.TimeoutError):
            is_up = engine.is_alive
    return state.metrics.render(stats, is_up)
