"""GGUF files of encoders and embedders: what becomes of the hidden states, from the file's own metadata.

The file says how to pool and nothing of what follows; vectors are normalised, as llama.cpp's server does. There are no prompts,
no Dense layers and no limit of texts but the context's. A reranker's scores become what those of a cross-encoder's folder do.
"""

from __future__ import annotations

import logging

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import ModelFiles
from octavo.engine.models.gguf_pooling import TYPES, is_gguf_encoder, pooling_of, ranks
from octavo.engine.pooling.modules import Pipeline, PoolingMode
from octavo.platforms.types import Activation

log = logging.getLogger("octavo.engine")

_MODES: dict[str, PoolingMode] = {"mean": "mean", "cls": "cls", "last": "lasttoken"}


def gives_scores(files: ModelFiles) -> bool:
    """Whether scores are what the file's model is made for."""
    return ranks(files.metadata, files.checkpoint, str(files.path))


def refuse_other_use(files: ModelFiles, *, with_head: bool) -> None:
    """ModelError for a reranker that is opened for vectors, a model of vectors that is opened for scores, a generator."""
    where, name = str(files.path), files.architecture
    pooling, is_encoder, has_scores = (
        pooling_of(files.metadata, where),
        is_gguf_encoder(files.metadata),
        gives_scores(files),
    )
    if has_scores and not is_encoder:
        raise ModelError(
            f"{where}: {name}.pooling_type is rank, and rerankers made of generators are not served from GGUF files; use the "
            "model's safetensors"
        )
    if has_scores and not with_head:
        raise ModelError(
            f"{where}: {name} with a head gives scores for texts and pairs of texts: use octavo.Reranker (octavo rerank) or "
            "octavo.Classifier; its vectors were not trained to be compared"
        )
    if with_head and not has_scores:
        raise ModelError(
            f"{where}: {name} has no head that classifies (cls.weight, cls.output.weight); octavo.Embedder (octavo embed) makes "
            "vectors of encoders, octavo.LLM runs generators"
        )
    if not is_encoder and pooling == "none":
        wanted = ", ".join(f"{number} ({kind})" for number, kind in enumerate(TYPES) if kind in _MODES)
        raise ModelError(
            f"{where}: {name} is a decoder without {name}.pooling_type, which says how its hidden states become vectors; "
            f"embedders have one of {wanted}. octavo.LLM runs generators"
        )


def read_gguf(files: ModelFiles, *, hidden: int, max_tokens: int) -> Pipeline:
    """What follows an encoder of width `hidden`, which takes `max_tokens` tokens."""
    pooling = pooling_of(files.metadata, str(files.path))
    notes: tuple[str, ...] = ()
    if pooling == "none":
        key = f"{files.architecture}.pooling_type"
        notes = (f"{files.path} does not say how to pool ({key}): vectors are the mean of all tokens",)
        log.warning("%s", notes[0])
    mode = _MODES.get(pooling, "mean")
    return Pipeline(modes=(mode,), normalizes=True, width=hidden, max_tokens=max_tokens, notes=notes)


def read_gguf_scores(num_labels: int, max_tokens: int) -> Pipeline:
    """The same of a file whose head gives `num_labels` scores."""
    activation: Activation = "sigmoid" if num_labels == 1 else "none"
    return Pipeline(modes=(), width=num_labels, max_tokens=max_tokens, activation=activation)
