"""What a model gives, from its description alone: tokens, vectors, scores. Reads config.json, no weight; imports no family."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from octavo.engine.models.head_kinds import kind_of as head_of
from octavo.engine.models.registry import BARE, ENCODERS

#: tokens, vectors of texts, scores of texts or pairs, scores of tokens
Kind = Literal["generate", "embed", "sequence", "token"]


class _Config(msgspec.Struct):
    architectures: list[str] | None = None


def gives_vectors(model: str | os.PathLike[str]) -> bool:
    """Whether the model at a local path is an encoder's, or has the module list of one that gives vectors.

    What is not there, or cannot be read, is said by whoever opens it: False.
    """
    return kind_of(model) != "generate"


def kind_of(model: str | os.PathLike[str]) -> Kind:
    """What the model at a local path gives; what cannot be read is taken for a generator, whose loader says what is wrong."""
    path = Path(model)
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".gguf":
        return "generate"
    if (folder / "modules.json").is_file():
        return "embed"
    try:
        found = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError):
        return "generate"
    name = next(iter(found.architectures or ()), "")
    if name not in ENCODERS and name not in BARE:
        return "generate"
    head = head_of(name)
    return head if head in ("sequence", "token") else "embed"
