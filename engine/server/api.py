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
from octavo.engine.server.rerank import RerankEndpoints
from octavo.engine.server.routes import Plane, Route, RouteTable
from octavo.engine.server.state import ServerState
from octavo.engine.server.status import StatusEndpoints
from octavo.engine.server.tei import TeiEndpoints
from octavo.engine.server.tokens import TokenEndpoints


def make_routes(state: ServerState) -> list[Route]:
    """Every route of the server."""
    status, tokens, tei = StatusEndpoints(state), TokenEndpoints(state), TeiEndpoints(state)
    rerank, classify = RerankEndpoints(state), ClassifyEndpoints(state)
    size = state.settings.bounds.max_body_bytes
    tenant, public = Plane.TENANT, Plane.PUBLIC
    return [
        Route("GET", "/live", public, status.live),
        Route("GET", "/health", public, status.health),
        Route("GET", "/ready", public, status.ready),
        Route("GET", "/version", tenant, status.version),
        Route("GET", "/metrics", tenant, status.metrics),
        Route("GET", "/v1/models", tenant, status.models),
        Route("GET", "/v1/models/{name}", tenant, status.model),
        Route("POST", "/v1/chat/completions", tenant, ChatEndpoint(state), size, is_watched=True),
        Route("POST", "/v1/completions", tenant, CompletionsEndpoint(state), size, is_watched=True),
        Route("POST", "/v1/embeddings", tenant, EmbeddingsEndpoint(state), size, is_watched=True),
        Route("POST", "/pooling", tenant, PoolingEndpoint(state), size, is_watched=True),
        Route("POST", "/v2/embed", tenant, CohereEmbedEndpoint(state), size, is_watched=True),
        Route("POST", "/embed", tenant, tei.embed, size, is_watched=True),
        Route("POST", "/embed_all", tenant, tei.embed_all, size, is_watched=True),
        Route("POST", "/v1/rerank", tenant, rerank.v1, size, is_watched=True),
        Route("POST", "/v2/rerank", tenant, rerank.v2, size, is_watched=True),
        Route("POST", "/rerank", tenant, rerank.any, size, is_watched=True),
        Route("POST", "/score", tenant, rerank.score, size, is_watched=True),
        Route("POST", "/classify", tenant, classify.classify, size, is_watched=True),
        Route("POST", "/predict", tenant, classify.predict, size, is_watched=True),
        Route("GET", "/info", tenant, tei.info),
        Route("POST", "/tokenize", tenant, tokens.tokenize, size, is_watched=True),
        Route("POST", "/detokenize", tenant, tokens.detokenize, size, is_watched=True),
    ]


def make_app(state: ServerState, keys: Iterable[str] = ()) -> App:
    """The application of the public socket."""
    return App(RouteTable(make_routes(state)), KeyRing(keys), state.settings.bounds, state.metrics)
