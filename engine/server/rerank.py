"""POST /v1/rerank, /v2/rerank and /rerank (Jina, Cohere, text-embeddings-inference), and /score (vLLM).

Documents come back from high scores to low ones, equal ones in their order. Where a pair is too long its document loses its end,
as with Cohere and Jina, and its result says so (`truncated_from`); with `truncate: "error"`, and in text-embeddings-inference's
shape without `truncate`, it is an error. Sources: https://docs.cohere.com/reference/rerank, https://jina.ai/reranker,
the OpenAPI description of text-embeddings-inference 1.8, vLLM's score API.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from octavo.engine.pooling.prompt_pairs import refuse_instruction
from octavo.engine.server.generate import extra_headers
from octavo.engine.server.http import HttpError, Request, Response, bad_request, error_object, json_response
from octavo.engine.server.inputs import prompt_of
from octavo.engine.server.items import ItemsRun
from octavo.engine.server.pairs import (
    Scored,
    asked_pairs,
    by_score,
    pair_truncation,
    score_items,
    tei_pair_truncation,
)
from octavo.engine.server.pooling_schema import RerankBody, ScoreBody, TeiRerankBody
from octavo.engine.server.schema import decode
from octavo.engine.server.similarity import similarities
from octavo.engine.server.state import Model, ServerState
from octavo.engine.server.vectors import usage_of


class _Peek(msgspec.Struct):
    """Which shape a body of /rerank has."""

    texts: msgspec.Raw = msgspec.Raw()


_peek = msgspec.json.Decoder(_Peek)


class RerankEndpoints:
    """The handlers."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def v1(self, request: Request) -> Response:
        """Jina's shape."""
        return await self._reranked(request, is_cohere=False)

    async def v2(self, request: Request) -> Response:
        """Cohere's shape."""
        return await self._reranked(request, is_cohere=True)

    async def any(self, request: Request) -> Response:
        """text-embeddings-inference's shape where there are `texts`, else Jina's."""
        try:
            is_tei = bool(_peek.decode(request.body).texts)
        except (msgspec.DecodeError, RecursionError):
            is_tei = False  # whose fault it is, the next decoder says
        return await (self._tei(request) if is_tei else self._reranked(request, is_cohere=False))

    async def _reranked(self, request: Request, *, is_cohere: bool) -> Response:
        body = decode(RerankBody, request.body)
        state = self._state
        model = state.pooler(request.path, "score")
        state.check_name(body.model)
        documents = _documents(body)
        _check(body)
        asked = asked_pairs(
            state,
            model,
            [(body.query, document) for document in documents],
            "documents",
            prompt=_prompt(model, body.prompt_name, body.prompt, body.instruction),
            truncate=pair_truncation(body.truncate, "error" if body.truncation is False else "only_second"),
            activation="none" if body.raw_scores else model.pooling.pair_activation,
            max_second=body.max_tokens_per_doc,
            keeps_errors=bool(body.item_errors),
        )
        scored = await score_items(state, request, model, asked)
        results = _results(scored, documents if body.return_documents else None, body.top_n)
        if is_cohere:
            meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
            return json_response({"id": request.id, "results": results, "meta": meta}, 200, extra_headers(body))
        answer = {"id": f"rerank-{request.id}", "model": state.settings.served_names[0], "usage": usage_of(scored.run)}
        return json_response({**answer, "results": results}, 200, extra_headers(body))

    async def _tei(self, request: Request) -> Response:
        body = decode(TeiRerankBody, request.body)
        state = self._state
        state.check_name(body.model)
        model = state.pooler(request.path, "score")
        _check_query(body.query)
        if not body.texts:
            raise bad_request("texts is empty; send at least one", "texts")
        asked = asked_pairs(
            state,
            model,
            [(body.query, text) for text in body.texts],
            "texts",
            truncate=tei_pair_truncation(body.truncate, body.truncation_direction),
            activation="none" if body.raw_scores else "sigmoid",
        )
        scored = await score_items(state, request, model, asked)
        return json_response(
            [
                {"index": index, "score": score, **({"text": body.texts[index]} if body.return_text else {})}
                for index, score in by_score(scored.rows)
            ]
        )

    async def score(self, request: Request) -> Response:
        """{text_1, text_2} -> a score per pair, in their order."""
        body = decode(ScoreBody, request.body)
        state = self._state
        model = state.pooler(request.path, "score", "embed", "token_embed")
        state.check_name(body.model)
        if "score" not in model.pooling.tasks:
            pairs = _paired(body, state.settings.bounds.max_inputs)
            run, scores, cut = await similarities(state, request, model, body, pairs)
            return _scores(state, request, body, scores, cut, run)
        asked = asked_pairs(
            state,
            model,
            _paired(body),
            "text_2",
            prompt=_prompt(model, None, None, body.instruction),
            truncate=pair_truncation(body.truncate, "error"),
            activation=_activation(model, body.use_activation),
            is_list=isinstance(body.text_2, list),
        )
        scored = await score_items(state, request, model, asked)
        scores = [row[0] for row in scored.rows if row is not None]
        cut = [scored.run.truncated.get(index, 0) for index in range(len(scores))]
        return _scores(state, request, body, scores, cut, scored.run)


def _scores(
    state: ServerState, request: Request, body: ScoreBody, scores: list[float], cut: list[int], run: ItemsRun
) -> Response:
    """vLLM's list of scores; `cut`: tokens of what was cut, 0 for what was not."""
    data = [
        {"index": index, "object": "score", "score": score, **({"truncated_from": tokens} if tokens else {})}
        for index, (score, tokens) in enumerate(zip(scores, cut, strict=True))
    ]
    head = {"id": f"score-{request.id}", "object": "list", "created": int(time.time())}
    tail = {"model": state.settings.served_names[0], "usage": usage_of(run)}
    return json_response({**head, "data": data, **tail}, 200, extra_headers(body))


def _activation(model: Model, uses: bool | None) -> str:
    return "none" if uses is False else model.pooling.pair_activation


def _prompt(model: Model, name: str | None, prompt: str | None, instruction: str | None) -> str:
    """What goes before a query, or the instruction of a model that takes one."""
    texts, pairs = model.texts, model.pairs
    assert texts is not None and pairs is not None
    if instruction is None:
        return prompt_of(texts, prompt_name=name, prompt=prompt)
    refuse_instruction(pairs, name if prompt is None else prompt)
    return instruction


def _check(body: RerankBody) -> None:
    """What a body asks for beside its documents."""
    _check_query(body.query)
    if body.top_n is not None and body.top_n < 1:
        raise bad_request(f"top_n is {body.top_n}; it must be 1 or more", "top_n")
    if body.max_tokens_per_doc is not None and body.max_tokens_per_doc < 1:
        raise bad_request(
            f"max_tokens_per_doc is {body.max_tokens_per_doc}; it must be 1 or more", "max_tokens_per_doc"
        )
    for name in ("max_chunks_per_doc", "rank_fields"):
        if getattr(body, name):
            raise bad_request(f"{name} is not supported; leave it out", name, "unsupported_parameter")


def _check_query(query: str) -> None:
    if not query:
        raise bad_request("query is empty; send a text", "query")


def _documents(body: RerankBody) -> list[str]:
    """The documents' texts."""
    if not body.documents:
        raise bad_request("documents is empty; send at least one", "documents")
    found = []
    for index, document in enumerate(body.documents):
        text = document if isinstance(document, str) else document.get("text")
        if not isinstance(text, str):
            name = f"documents[{index}]"
            raise bad_request(f"{name} has no text; send a string or an object with text", name, "missing_field")
        found.append(text)
    return found


def _paired(body: ScoreBody, most: int | None = None) -> list[tuple[str, str]]:
    """Both sides of every pair, `most` at most."""
    if not body.text_1 or not body.text_2:
        name = "text_2" if body.text_1 else "text_1"
        raise bad_request(f"{name} is empty; send at least one text", name)
    firsts = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    seconds = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(firsts) == 1:
        firsts = firsts * len(seconds)
    if len(firsts) != len(seconds):
        raise bad_request(
            f"text_1 has {len(firsts)} texts and text_2 {len(seconds)}; send one text_1, or as many as text_2", "text_1"
        )
    if most is not None and len(seconds) > most:
        raise bad_request(f"text_2 has {len(seconds)} entries; at most {most}: send several calls", "text_2")
    return list(zip(firsts, seconds, strict=True))


def _cut(scored: Scored, index: int) -> dict[str, int]:
    """Of a pair that was cut: how many tokens it had."""
    found = scored.run.truncated.get(index)
    return {} if found is None else {"truncated_from": found}


def _results(scored: Scored, documents: list[str] | None, top_n: int | None) -> list[dict[str, Any]]:
    """The best documents, and behind them those that have no score."""
    results: list[dict[str, Any]] = []
    for index, score in by_score(scored.rows)[:top_n]:
        found: dict[str, Any] = {"index": index, "relevance_score": score, **_cut(scored, index)}
        if documents is not None:
            found["document"] = {"text": documents[index]}
        results.append(found)
    errors = sorted(scored.run.errors.items())
    return results + [{"index": index, **_object(error)} for index, error in errors]


def _object(error: HttpError) -> dict[str, Any]:
    return error_object(error.status, str(error), error.param, error.code)
