"""POST /classify (vLLM) and /predict (text-embeddings-inference): scores of a model's labels for texts and pairs of texts."""

from __future__ import annotations

import time
from typing import Any

from octavo.engine.messages import ItemOptions
from octavo.engine.server.generate import extra_headers
from octavo.engine.server.http import Request, Response, bad_request, error_object, json_response
from octavo.engine.server.inputs import listed, prompt_of, truncation_of
from octavo.engine.server.pairs import asked_pairs, score_items, tei_pair_truncation
from octavo.engine.server.pooling_schema import ClassifyBody, TeiPredictBody
from octavo.engine.server.schema import decode
from octavo.engine.server.state import Model, ServerState
from octavo.engine.server.tei import tei_truncation
from octavo.engine.server.vectors import Asked, usage_of


class ClassifyEndpoints:
    """The handlers."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def classify(self, request: Request) -> Response:
        """{input} -> the best label and the scores of all, per text."""
        body = decode(ClassifyBody, request.body)
        state = self._state
        model = state.pooler(request.path, "classify")
        state.check_name(body.model)
        texts = model.texts
        assert texts is not None
        inputs = listed(body.input, "input", state.settings.bounds.max_inputs)
        asked = Asked(
            inputs,
            "input",
            prompt_of(texts, prompt_name=body.prompt_name, prompt=body.prompt),
            truncation_of(body.truncate),
            "classify",
            ItemOptions(activation=_activation(model, raw=body.use_activation is False)),
            inputs is body.input,
            bool(body.item_errors),
        )
        scored = await score_items(state, request, model, asked)
        labels, run = model.pooling.labels, scored.run
        data: list[dict[str, Any]] = []
        for index, row in enumerate(scored.rows):
            if row is None:
                error = run.errors[index]
                inner = error_object(error.status, str(error), error.param, error.code)
                data.append({"index": index, "object": "error", **inner})
                continue
            cut = {"truncated_from": run.truncated[index]} if index in run.truncated else {}
            label = labels[row.index(max(row))]
            data.append({"index": index, "label": label, "probs": row, "num_classes": len(labels), **cut})
        head = {"id": f"classify-{request.id}", "object": "list", "created": int(time.time())}
        tail = {"model": state.settings.served_names[0], "data": data, "usage": usage_of(run)}
        return json_response({**head, **tail}, 200, extra_headers(body))

    async def predict(self, request: Request) -> Response:
        """{inputs} -> labels with their scores, best first; of a list of inputs a list of these."""
        body = decode(TeiPredictBody, request.body)
        state = self._state
        state.check_name(body.model)
        model = state.pooler(request.path, "classify")
        options = ItemOptions(activation=_activation(model, raw=bool(body.raw_scores)))
        items, is_list = _inputs(body, state.settings.bounds.max_inputs)
        if isinstance(items[0], tuple):
            truncate = tei_pair_truncation(body.truncate, body.truncation_direction)
            asked = asked_pairs(
                state, model, items, "inputs", truncate=truncate, activation=options.activation, is_list=is_list
            )
        else:
            policy = tei_truncation(body.truncate, body.truncation_direction)
            asked = Asked(items, "inputs", "", policy, "classify", options, is_list)
        scored = await score_items(state, request, model, asked)
        found = [_best_first(model.pooling.labels, row) for row in scored.rows if row is not None]
        return json_response(found if is_list else found[0])


def _activation(model: Model, *, raw: bool) -> str:
    return "none" if raw else model.pooling.label_activation


def _best_first(labels: list[str], row: list[float]) -> list[dict[str, Any]]:
    order = sorted(range(len(row)), key=lambda place: -row[place])
    return [{"label": labels[place], "score": row[place]} for place in order]


def _inputs(body: TeiPredictBody, most: int) -> tuple[list[Any], bool]:
    """Texts, or pairs as tuples; whether they are a list of inputs and not one."""
    given = body.inputs
    if isinstance(given, str):
        return [given], False
    if len(given) == 2 and all(isinstance(entry, str) for entry in given):
        return [tuple(given)], False
    if not given or len(given) > most:
        raise bad_request(f"inputs has {len(given)} entries; 1 to {most} work", "inputs")
    found: list[Any] = []
    for index, entry in enumerate(given):
        parts = [entry] if isinstance(entry, str) else entry
        is_other = bool(found) and isinstance(found[0], tuple) != (len(parts) == 2)
        if is_other or not 1 <= len(parts) <= 2:
            name = f"inputs[{index}]"
            raise bad_request(f"{name} has {len(parts)} texts; all inputs of a call have one, or all two", name)
        found.append(parts[0] if len(parts) == 1 else tuple(parts))
    return found, True
