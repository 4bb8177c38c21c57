"""POST /v2/embed, in Cohere's shape.

Bits of `binary` and `ubinary` are 1 for values above 0, eight to a byte, the first one highest; `binary` is the byte less 128.
Cohere does not say how its int8 values are made. Here: of the vector at length 1, x * 127 * sqrt(width) / 8, rounded to
even and kept within [-128, 127], so that a value of 8 standard deviations is full scale; `uint8` is that plus 128.
Source: https://docs.cohere.com/reference/embed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.messages import ItemOptions, ItemOutput
from octavo.engine.pooling.texts import Truncation
from octavo.engine.pooling.vectors import normalized
from octavo.engine.server.embeddings import dimensions_of
from octavo.engine.server.http import JSON, Request, Response, bad_request
from octavo.engine.server.inputs import listed, prompt_of
from octavo.engine.server.json_numbers import base64_of, joined, json_numbers
from octavo.engine.server.pooling_schema import CohereEmbedBody
from octavo.engine.server.schema import decode
from octavo.engine.server.state import ServerState
from octavo.engine.server.vectors import Asked, encode, run_items, values_of

if TYPE_CHECKING:
    from octavo.platforms.types import F32

TYPES = ("float", "int8", "uint8", "binary", "ubinary", "base64")
_FULL_SCALE = 8.0  # standard deviations of a value
_TRUNCATE: dict[str, Truncation] = {"NONE": "error", "START": "start", "END": "end"}


class CohereEmbedEndpoint:
    """The handler."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response:
        """Answers one call."""
        state = self._state
        body = decode(CohereEmbedBody, request.body)
        model = state.pooler(request.path, "embed")
        state.check_name(body.model)
        texts = model.texts
        assert texts is not None
        given = _texts(body)
        types = _types(body.embedding_types)
        asked = Asked(
            listed(given, "texts", state.settings.bounds.max_inputs),
            "texts",
            prompt_of(texts, input_type=body.input_type),
            cohere_truncation(body.truncate),
            options=ItemOptions(None, dimensions_of(texts, body.output_dimension, "output_dimension")),
        )
        pieces: dict[str, list[bytes]] = {kind: [b""] * len(given) for kind in types}

        def take(index: int, output: ItemOutput) -> None:
            for kind in types:
                pieces[kind][index] = written(kind, values_of(output)[0])

        run = await run_items(state, request, model, asked, take)
        vectors = b",".join(encode(kind) + b":" + joined(pieces[kind]) for kind in types)
        tail = {
            "texts": given,
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": run.num_tokens}},
            "response_type": "embeddings_by_type",
        }
        start = encode({"id": request.id})[:-1]
        return Response(b"".join([start, b',"embeddings":{', vectors, b"},", encode(tail)[1:]]), 200, JSON)


def _texts(body: CohereEmbedBody) -> list[str]:
    for name in ("images", "inputs", "max_tokens"):
        if getattr(body, name):
            raise bad_request(f"{name} is not supported; send texts alone", name, "unsupported_parameter")
    if body.texts is None:
        raise bad_request("texts is required; send it", "texts", "missing_field")
    return body.texts


def _types(asked: list[str] | None) -> list[str]:
    types = list(dict.fromkeys(["float"] if asked is None else asked))
    for kind in types:
        if kind not in TYPES:
            raise bad_request(f"embedding_types has {kind[:40]!r}; known are {', '.join(TYPES)}", "embedding_types")
    if not types:
        raise bad_request(f"embedding_types is empty; send some of {', '.join(TYPES)}", "embedding_types")
    return types


def cohere_truncation(asked: str | None) -> Truncation:
    """Cohere's words; END, as there, when nothing is said."""
    if asked is None:
        return "end"
    if asked.upper() not in _TRUNCATE:
        raise bad_request(f"truncate is {asked[:40]!r}; it must be NONE, START or END", "truncate")
    return _TRUNCATE[asked.upper()]


def written(kind: str, vector: F32) -> bytes:
    """One vector [width] as JSON."""
    if kind == "float":
        return json_numbers(vector)
    if kind == "base64":
        return base64_of(vector.astype("<f4").tobytes())
    return encode(compressed(kind, vector).tolist())


def compressed(kind: str, vector: F32) -> NDArray[Any]:
    """A vector as whole numbers."""
    found: NDArray[Any]
    if kind in ("binary", "ubinary"):
        found = np.packbits(vector > 0)
        return found if kind == "ubinary" else (found.astype(np.int16) - 128).astype(np.int8)
    unit = normalized(vector[None])[0]
    steps = np.rint(unit * np.float32(127.0 * math.sqrt(len(vector)) / _FULL_SCALE))
    found = np.clip(steps, -128, 127).astype(np.int16)
    return found.astype(np.int8) if kind == "int8" else (found + 128).astype(np.uint8)
