"""What the server says of itself: /health, /live, /ready, /version, /v1/models, /metrics.

live: the HTTP side answers. health: no engine that was there has gone. ready: a real one-token pass has come through the
whole path and the server is not draining.
"""

from __future__ import annotations

import asyncio
import time

from octavo import __version__
from octavo.engine.errors import EngineDeadError
from octavo.engine.messages import AddItems, AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.http import Request, Response, json_response, unavailable
from octavo.engine.server.state import ServerState

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

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def live(self, request: Request) -> Response:
        """200 as long as this process answers."""
        return json_response({"status": "alive"})

    async def health(self, request: Request) -> Response:
        """503 once the engine has ended, else 200 (while loading too: nothing is wrong then)."""
        if self._state.is_engine_dead:
            raise unavailable("the engine ended; restart the server", "engine_dead", 10.0)
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 when requests will be answered now."""
        self._state.model()
        if not self._state.is_warm:
            raise unavailable("the first pass through the model has not come back yet", "loading")
        return json_response({"status": "ready"})

    async def version(self, request: Request) -> Response:
        """The version of this package."""
        return json_response({"version": __version__})

    def _card(self, name: str) -> dict[str, object]:
        engine = self._state.engine
        return {
            "id": name,
            "object": "model",
            "created": self._state.created,
            "owned_by": "octavo",
            "max_model_len": engine.info.max_model_len if engine is not None else None,
            **_pooling_card(engine),
        }

    async def models(self, request: Request) -> Response:
        """The served names."""
        names = self._state.settings.served_names
        return json_response({"object": "list", "data": [self._card(name) for name in names]})

    async def model(self, request: Request) -> Response:
        """One served name."""
        self._state.check_name(request.path_arg)
        return json_response(self._card(request.path_arg))

    async def metrics(self, request: Request) -> Response:
        """Prometheus text; without the engine's part when it does not answer within a second."""
        stats: dict[str, float] = {}
        engine = self._state.engine
        is_up = engine is not None and engine.is_alive
        if engine is not None and is_up:
            try:
                stats = await asyncio.wait_for(engine.stats(), _STATS_TIMEOUT_S)
            except (EngineDeadError, asyncio.TimeoutError):
                is_up = engine.is_alive
        text = self._state.metrics.render(stats, is_up)
        return Response(text.encode(), 200, b"text/plain; version=0.0.4; charset=utf-8")
