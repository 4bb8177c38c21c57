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
    """POST /pooling. `task`: one of the model's; or `outputs`: several of what it gives, of one pass."""

    task: str | None = None
    outputs: list[str] | None = None


class TeiEmbedBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /embed. `truncate` true cuts at `truncation_direction`, the end without it. `model`: ours, for servers of several."""

    model: str | None = None
    inputs: Inputs
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None


class TeiEmbedSparseBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /embed_sparse."""

    model: str | None = None
    inputs: Inputs
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None


class TeiEmbedAllBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /embed_all."""

    model: str | None = None
    inputs: Inputs
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None


class RerankBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/rerank, /v2/rerank and /rerank, as Jina and Cohere have it. A document is a text or an object with `text`.

    `truncate` is error, longest_first or only_second (the default: the document loses its end); Jina's `truncation` false is
    error. `instruction`: of models that are asked whether a document fits.
    """

    model: str | None = None
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = None
    truncate: str | None = None
    truncation: bool | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    instruction: str | None = None
    raw_scores: bool | None = None
    item_errors: bool | None = None
    user: str | None = None
    priority: Any = None
    max_chunks_per_doc: Any = None
    rank_fields: Any = None


class TeiRerankBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /rerank with `texts`, as text-embeddings-inference has it."""

    model: str | None = None
    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None


class TeiPredictBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /predict. `inputs`: a text, a pair of texts, or a list of lists of one text or two."""

    model: str | None = None
    inputs: str | list[str | list[str]]
    raw_scores: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None


class ScoreBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /score: one text against one or several, or lists of the same length. `truncate` as of RerankBody, default error."""

    model: str | None = None
    text_1: str | list[str]
    text_2: str | list[str]
    instruction: str | None = None
    truncate: str | None = None
    use_activation: bool | None = None
    user: str | None = None


class ClassifyBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /classify. `input` as of embeddings."""

    model: str | None = None
    input: Inputs
    truncate: str | None = None
    use_activation: bool | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    item_errors: bool | None = None
    user: str | None = None


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
