"""The public routes of `octavo serve`: the one table, and the application over it."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.engine.server.app import App
from octavo.engine.server.auth import KeyRing
from octavo.engine.server.chat import ChatEndpoint
from octavo.engine.server.classify import ClassifyEndpoints
from octavo.engine.server.cohere import CohereEmbedEndpoint
from octavo.engine.server.completions import CompletionsEndpoint
from octavo.engine.server.embeddings import EmbeddingsEndpoint, PoolingEndpoint
from octavo.engine.server.fleet import Fleet
from octavo.engine.server.rerank import RerankEndpoints
from octavo.engine.server.routes import Handler, Plane, Route, RouteTable
from octavo.engine.server.state import ServerState
from octavo.engine.server.status import StatusEndpoints
from octavo.engine.server.switch import Switch
from octavo.engine.server.tei import TeiEndpoints
from octavo.engine.server.tokens import TokenEndpoints


def model_handlers(state: ServerState) -> dict[str, Handler]:
    """Path -> what a model does with a POST to it."""
    tokens, tei = TokenEndpoints(state), TeiEndpoints(state)
    rerank, classify = RerankEndpoints(state), ClassifyEndpoints(state)
    return {
        "/v1/chat/completions": ChatEndpoint(state),
        "/v1/completions": CompletionsEndpoint(state),
        "/v1/embeddings": EmbeddingsEndpoint(state),
        "/pooling": PoolingEndpoint(state),
        "/v2/embed": CohereEmbedEndpoint(state),
        "/embed": tei.embed,
        "/embed_all": tei.embed_all,
        "/embed_sparse": tei.embed_sparse,
        "/v1/rerank": rerank.v1,
        "/v2/rerank": rerank.v2,
        "/rerank": rerank.any,
        "/score": rerank.score,
        "/classify": classify.classify,
        "/predict": classify.predict,
        "/tokenize": tokens.tokenize,
        "/detokenize": tokens.detokenize,
    }


def make_routes(fleet: Fleet) -> list[Route]:
    """Every route of the server."""
    status = StatusEndpoints(fleet)
    tenant, public = Plane.TENANT, Plane.PUBLIC
    size = fleet.members[0].state.settings.bounds.max_body_bytes
    handlers = {member: model_handlers(member.state) for member in fleet.members}
    return [
        Route("GET", "/live", public, status.live),
        Route("GET", "/health", public, status.health),
        Route("GET", "/ready", public, status.ready),
        Route("GET", "/version", tenant, status.version),
        Route("GET", "/metrics", tenant, status.metrics),
        Route("GET", "/v1/models", tenant, status.models),
        Route("GET", "/v1/models/{name}", tenant, status.model),
        Route("GET", "/info", tenant, status.info),
        *(
            Route(
                "POST",
                path,
                tenant,
                Switch(fleet, {member: own[path] for member, own in handlers.items()}),
                size,
                is_watched=True,
            )
            for path in handlers[fleet.members[0]]
        ),
    ]


def make_app(fleet: Fleet, keys: Iterable[str] = ()) -> App:
    """The application of the public socket."""
    metrics = {member.name: member.state.metrics for member in fleet.members}
    bounds = fleet.members[0].state.settings.bounds
    return App(RouteTable(make_routes(fleet)), KeyRing(keys), bounds, metrics)
