"""What a GGUF file's model gives: tokens, vectors or scores. Reads the architecture, its `pooling_type` and names of tensors.

Pooling types: 0 none, 1 mean, 2 cls, 3 last, 4 rank (a head makes scores of the pooled state). Rerankers are often converted
without the last, so that a head tells them, too. Source: llama.cpp's `llama_pooling_type`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal

from octavo.engine.errors import ModelError
from octavo.engine.models.registry import GGUF_ENCODERS

GGUFPooling = Literal["none", "mean", "cls", "last", "rank"]
TYPES: tuple[GGUFPooling, ...] = ("none", "mean", "cls", "last", "rank")
_HEADS = ("cls.weight", "cls.output.weight")


def pooling_of(metadata: Mapping[str, Any], where: str) -> GGUFPooling:
    """The file's pooling; "none" where it does not say. ModelError for a type that there is not."""
    key = f"{metadata.get('general.architecture')}.pooling_type"
    value = metadata.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(TYPES):
        listed = ", ".join(f"{number} ({name})" for number, name in enumerate(TYPES))
        raise ModelError(f"{where}: {key} is {value!r}; it must be one of {listed}")
    return TYPES[value]


def is_gguf_encoder(metadata: Mapping[str, Any]) -> bool:
    """Whether the architecture is an encoder's."""
    return metadata.get("general.architecture") in GGUF_ENCODERS


def ranks(metadata: Mapping[str, Any], tensors: Container[str], where: str) -> bool:
    """Whether scores are what the model is made for."""
    return pooling_of(metadata, where) == "rank" or (
        is_gguf_encoder(metadata) and any(name in tensors for name in _HEADS)
    )
