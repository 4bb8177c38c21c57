"""What a model gives, from its description alone: tokens or vectors. Reads config.json, no weight, and imports no family."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from octavo.engine.models.registry import BARE, ENCODERS


class _Config(msgspec.Struct):
    architectures: list[str] | None = None


def gives_vectors(model: str | os.PathLike[str]) -> bool:
    """Whether the model at a local path is an encoder's, or has the module list of one that gives vectors.

    What is not there, or cannot be read, is said by whoever opens it: False.
    """
    path = Path(model)
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".gguf":
        return False
    if (folder / "modules.json").is_file():
        return True
    try:
        found = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError):
        return False
    return any(name in ENCODERS or name in BARE for name in (found.architectures or ())[:1])
