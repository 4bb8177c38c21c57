"""/score of models that give vectors: how alike the texts of each pair are, as vLLM answers it.

Each text is embedded once. Two vectors of texts are compared by their cosine; vectors of tokens (ColBERT) by the sum over the
query's of the largest product with one of the document's, the first text being the query. Products of a cosine are added without
rounding, so that it has the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.engine.messages import ItemOptions, ItemOutput
from octavo.engine.pooling.late import max_sim
from octavo.engine.pooling.outputs import Role
from octavo.engine.pooling.texts import Item
from octavo.engine.server.embeddings import dimensions_of
from octavo.engine.server.http import Request, bad_request
from octavo.engine.server.inputs import chars_of, prompt_of, truncation_of
from octavo.engine.server.items import ItemsRun
from octavo.engine.server.pooling_schema import ScoreBody
from octavo.engine.server.state import Model, ServerState
from octavo.engine.server.vectors import Asked, endless, run_items, values_of
from octavo.platforms.types import F32


async def similarities(
    state: ServerState, request: Request, model: Model, body: ScoreBody, pairs: Sequence[tuple[str, str]]
) -> tuple[ItemsRun, list[float], list[int]]:
    """The run, a score per pair, and how many tokens its longer text had where one was cut (0: none)."""
    texts = model.texts
    assert texts is not None
    for name in ("use_activation", "instruction"):
        if getattr(body, name) is not None:
            raise bad_request(f"{name} is for models that read both texts at once; this one compares vectors", name)
    truncate = truncation_of(body.truncate)
    is_late = "embed" not in model.pooling.tasks
    sides = [("query" if is_late else "", text) for text in dict.fromkeys(first for first, _ in pairs)]
    sides += [("document" if is_late else "", text) for text in dict.fromkeys(second for _, second in pairs)]
    inputs: list[tuple[Any, str]] = list(dict.fromkeys(sides))
    place = {side: index for index, side in enumerate(inputs)}
    prompt = "" if is_late else prompt_of(texts)
    most = state.settings.bounds.max_whole_chars if truncate == "start" else None

    def item_of(side: tuple[Role, str]) -> Item:
        role, text = side
        if most is not None and chars_of(text) > most:
            return endless(most)
        if model.entered is not None and is_late:
            return model.entered.item(text, role, truncate)
        return texts.item(text, prompt, truncate)

    def where(index: int) -> str:
        role, text = inputs[index]
        for name, given in (("text_1", body.text_1), ("text_2", body.text_2)):
            if given == text:
                return name
            if isinstance(given, list) and text in given and role != ("document" if name == "text_1" else "query"):
                return f"{name}[{given.index(text)}]"
        return "text_1"

    found: list[F32] = [np.zeros((1, 1), np.float32)] * len(inputs)

    def take(index: int, output: ItemOutput) -> None:
        found[index] = np.array(values_of(output))

    asked = Asked(
        inputs,
        "text_1",
        task="token_embed" if is_late else "embed",
        options=ItemOptions() if is_late else ItemOptions(True, dimensions_of(texts, None)),
        make=lambda some: [item_of(side) for side in some],
        where=where,
    )
    run = await run_items(state, request, model, asked, take)
    keys = [(("query" if is_late else "", a), ("document" if is_late else "", b)) for a, b in pairs]
    compare = max_sim if is_late else cosine
    scores = [float(np.float32(compare(found[place[a]], found[place[b]]))) for a, b in keys]
    return run, scores, [max(run.truncated.get(place[a], 0), run.truncated.get(place[b], 0)) for a, b in keys]


def cosine(first: F32, second: F32) -> float:
    """Of two vectors [1, width]; 0 where one has no length."""
    a, b = first[0].astype(np.float64), second[0].astype(np.float64)
    length = math.sqrt(math.fsum((a * a).tolist()) * math.fsum((b * b).tolist()))
    return math.fsum((a * b).tolist()) / length if length else 0.0
