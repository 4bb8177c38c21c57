"""Request bodies of the endpoints that give vectors, strict as those of `schema`.

Sources: https://platform.openai.com/docs/api-reference/embeddings, https://docs.cohere.com/reference/embed, the OpenAPI
description of text-embeddings-inference 1.8, vLLM's pooling API.
"""

from __future__ import annotations

from typing import Any

import msgspec

Inputs = str | list[str | int | list[int]]


class VectorsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What OpenAI's and vLLM's bodies share. `input`: a text, texts, token ids, or lists of token ids.

    Ours besides: `input_type`, `prompt_name`, `prompt` or `instruction` put something before texts; `truncate` is error, start or
    end; `item_errors`: an input without a result says why in its place, and the call succeeds.
    """

    model: str | None = None
    input: Inputs
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    input_type: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    instruction: str | None = None
    truncate: str | None = None
    normalize: bool | None = None
    item_errors: bool | None = None


class EmbeddingsBody(VectorsBody, kw_only=True):
    """POST /v1/embeddings."""


class PoolingBody(VectorsBody, kw_only=True):
    """POST /pooling. `task`: one of the model's."""

    task: str | None = None


class TeiEmbedBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /embed. `truncate` true cuts at `truncation_direction`, the end without it."""

    inputs: Inputs
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None


class CohereEmbedBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v2/embed. `images` and `inputs` are known, and refused if they hold anything."""

    model: str | None = None
    texts: list[str] | None = None
    input_type: str | None = None
    embedding_types: list[str] | None = None
    truncate: str | None = None
    output_dimension: int | None = None
    images: Any = None
    inputs: Any = None
    max_tokens: Any = None
    priority: Any = None
