"""What a model gives, from its description alone: tokens, vectors, scores. Reads config.json and modules.json, or a GGUF file's
header, no weight; imports no family."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from octavo.engine.errors import ModelError
from octavo.engine.models.gguf_pooling import is_gguf_encoder, pooling_of, ranks
from octavo.engine.models.head_kinds import kind_of as head_of
from octavo.engine.models.registry import BARE, ENCODERS, SCORED

#: tokens, vectors of texts, scores of texts or pairs, scores of tokens
Kind = Literal["generate", "embed", "sequence", "token"]


#: rerankers that are published as generators, with nothing in their files that says so: architecture -> (a part of the folder's
#: name, how they are asked)
_BY_NAME = {
    "Qwen3ForCausalLM": ("qwen3-reranker", "qwen3"),
    "Qwen3ForSequenceClassification": ("qwen3-reranker", "qwen3"),
    "GemmaForCausalLM": ("bge-reranker-v2-gemma", "bge-gemma"),
}


class _Config(msgspec.Struct):
    architectures: list[str] | None = None


class _Module(msgspec.Struct):
    type: str = ""
    path: str = ""


def gives_vectors(model: str | os.PathLike[str]) -> bool:
    """Whether the model at a local path gives vectors or scores: an encoder, or what has a module list, a head that classifies,
    or the name of a reranker.

    What is not there, or cannot be read, is said by whoever opens it: False.
    """
    return kind_of(model) != "generate"


def kind_of(model: str | os.PathLike[str]) -> Kind:
    """What the model at a local path gives; what cannot be read is taken for a generator, whose loader says what is wrong."""
    path = Path(model)
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".gguf":
        return _of_gguf(path)
    if path.is_dir() and not (path / "config.json").exists() and not (path / "modules.json").exists():
        files = sorted(path.glob("*.gguf"))
        return _of_gguf(files[0]) if files else "generate"
    if (folder / "modules.json").is_file():
        return _of_modules(folder)
    name = _architecture(folder)
    if pair_style_of(folder, name):
        return "sequence"
    if name not in ENCODERS and name not in BARE and name not in SCORED:
        return "generate"
    head = head_of(name)
    return head if head in ("sequence", "token") else "embed"


def pair_style_of(folder: Path, architecture: str) -> str:
    """How a reranker that is known by its folder's name is asked, '' for others. Caches of hubs have the name one or two folders
    above the files."""
    part, style = _BY_NAME.get(architecture, ("", ""))
    return style if part and any(part in name.lower() for name in folder.absolute().parts[-3:]) else ""


def _of_modules(folder: Path) -> Kind:
    """The same of a folder with a module list: scores come from LogitScore, or from a Transformer alone that has a head."""
    try:
        listed = msgspec.json.decode((folder / "modules.json").read_bytes(), type=list[_Module])
    except (OSError, msgspec.DecodeError):
        return "embed"  # whose loader says what is wrong
    kinds = [module.type.rpartition(".")[2] for module in listed]
    if "LogitScore" in kinds:
        return "sequence"
    head = head_of(_architecture(folder / listed[0].path)) if kinds == ["Transformer"] else None
    return head if head in ("sequence", "token") else "embed"


def _of_gguf(path: Path) -> Kind:
    """The same of a GGUF file: an encoder's, or a decoder's that says how to pool."""
    from octavo.engine.loading.gguf import GGUFFile  # of no use to other models

    try:
        file = GGUFFile.open(path)
        try:
            if ranks(file.metadata, file.tensors, str(path)):
                return "sequence"
            makes_vectors = is_gguf_encoder(file.metadata) or pooling_of(file.metadata, str(path)) != "none"
            return "embed" if makes_vectors else "generate"
        finally:
            file.close()
    except (OSError, ModelError):
        return "generate"


def _architecture(folder: Path) -> str:
    try:
        found = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError):
        return ""
    return next(iter(found.architectures or ()), "")
