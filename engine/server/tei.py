"""text-embeddings-inference's endpoints: POST /embed, /embed_all and /embed_sparse, and what GET /info says.

What differs from there: errors have OpenAI's shape and 4xx of this server; `truncate` is false unless it is sent, since a text is
never cut silently; `model` says which of several models is meant. Source: OpenAPI description of text-embeddings-inference 1.8.
"""

from __future__ import annotations

from typing import Any

from octavo import __version__
from octavo.engine.messages import ItemOptions, ItemOutput
from octavo.engine.pooling.texts import Truncation
from octavo.engine.server.embeddings import dimensions_of, written
from octavo.engine.server.http import JSON, Request, Response, bad_request
from octavo.engine.server.inputs import listed, prompt_of, role_of
from octavo.engine.server.json_numbers import joined, json_numbers
from octavo.engine.server.pooling_schema import TeiEmbedAllBody, TeiEmbedBody, TeiEmbedSparseBody
from octavo.engine.server.schema import decode
from octavo.engine.server.state import ServerState
from octavo.engine.server.vectors import Asked, run_items, values_of

_DIRECTIONS: dict[str, Truncation] = {"right": "end", "left": "start"}


class TeiEndpoints:
    """The handlers."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def embed(self, request: Request) -> Response:
        """{inputs} -> [[numbers], ...]. Vectors have length 1 unless `normalize` is false."""
        body = decode(TeiEmbedBody, request.body)
        state = self._state
        state.check_name(body.model)
        model = state.pooler(request.path, "embed")
        texts = model.texts
        assert texts is not None
        options = ItemOptions(body.normalize is not False, dimensions_of(texts, body.dimensions))
        inputs = listed(body.inputs, "inputs", state.settings.bounds.max_inputs)
        asked = Asked(
            inputs,
            "inputs",
            prompt_of(texts, prompt_name=body.prompt_name),
            tei_truncation(body.truncate, body.truncation_direction),
            options=options,
            is_list=inputs is body.inputs,
        )
        pieces: list[bytes] = [b""] * len(asked.inputs)

        def take(index: int, output: ItemOutput) -> None:
            pieces[index] = json_numbers(values_of(output)[0])

        await run_items(state, request, model, asked, take)
        return Response(joined(pieces), 200, JSON)

    async def embed_all(self, request: Request) -> Response:
        """{inputs} -> [[[numbers of a token], ...], ...]: hidden states, neither pooled nor normalised; of models made to give a
        vector per token, those."""
        return await self._of_tokens(request, decode(TeiEmbedAllBody, request.body), "token_embed")

    async def embed_sparse(self, request: Request) -> Response:
        """{inputs} -> [[{index, value}, ...], ...]: weights of the vocabulary's entries."""
        return await self._of_tokens(request, decode(TeiEmbedSparseBody, request.body), "sparse")

    async def _of_tokens(self, request: Request, body: TeiEmbedAllBody | TeiEmbedSparseBody, task: str) -> Response:
        state = self._state
        state.check_name(body.model)
        model = state.pooler(request.path, task)
        texts = model.texts
        assert texts is not None
        has_roles = model.entered is not None and model.entered.has_roles
        role = role_of(has_roles, body.prompt_name)
        inputs = listed(body.inputs, "inputs", state.settings.bounds.max_inputs)
        asked = Asked(
            inputs,
            "inputs",
            "" if role or (has_roles and body.prompt_name is None) else prompt_of(texts, prompt_name=body.prompt_name),
            tei_truncation(body.truncate, body.truncation_direction),
            task,
            is_list=inputs is body.inputs,
            role=role or "document",
        )
        pieces: list[bytes] = [b""] * len(asked.inputs)

        def take(index: int, output: ItemOutput) -> None:
            pieces[index] = written(output, asked, model.pooling)

        await run_items(state, request, model, asked, take)
        return Response(joined(pieces), 200, JSON)


def info_of(state: ServerState) -> dict[str, Any]:
    """What GET /info says of a model: what it is, and its limits."""
    info = state.model().engine.info
    bounds, pooling = state.settings.bounds, info.pooling
    kind: dict[str, Any] = {"generation": {}}
    if pooling is not None and pooling.labels:
        named = {str(place): label for place, label in enumerate(pooling.labels)}
        numbered = {label: place for place, label in enumerate(pooling.labels)}
        kind = {"reranker" if "score" in pooling.tasks else "classifier": {"id2label": named, "label2id": numbered}}
    elif pooling is not None:
        kind = {"embedding": {"pooling": "+".join(pooling.modes) or "+".join(map(str, pooling.outputs))}}
    return {
        "model_id": state.settings.served_names[0],
        "model_sha": None,
        "model_dtype": "/".join(info.weight_formats),
        "model_type": kind,
        "max_concurrent_requests": state.settings.max_running,
        "max_input_length": info.max_model_len,
        "max_client_batch_size": bounds.max_inputs if pooling is not None else bounds.max_prompts,
        "auto_truncate": False,
        "version": __version__,
        **({} if pooling is None else {"prompts": pooling.prompts}),
        **({} if pooling is None or pooling.labels else {"dimensions": pooling.width}),
    }


def tei_truncation(truncate: bool | None, direction: str | None) -> Truncation:
    """`truncate` and `truncation_direction` as a policy."""
    side = _DIRECTIONS.get((direction or "right").lower())
    if side is None:
        raise bad_request(
            f"truncation_direction is {str(direction)[:40]!r}; it must be Left or Right", "truncation_direction"
        )
    return side if truncate else "error"
