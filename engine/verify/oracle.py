"""Vectors of sentence-transformers for a local model folder, where it is installed; in float32, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from octavo.engine.errors import ConfigError
from octavo.platforms.types import F32

PACKAGE = "sentence_transformers"


def is_installed() -> bool:
    """Whether sentence-transformers can be imported here."""
    return find_spec(PACKAGE) is not None


def oracle_vectors(folder: Path, texts: Sequence[str]) -> F32:
    """float32 [texts, dim]; texts too long lose their end. ConfigError where it is not installed or does not take the model."""
    if not is_installed():
        raise ConfigError(
            "sentence-transformers is not installed here; pip install sentence-transformers, or give --golden FILE"
        )
    made = import_module(PACKAGE).SentenceTransformer
    try:
        model = made(str(folder), device="cpu").float()
        vectors = model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
    except Exception as error:  # whatever its many layers raise: this is not our model that fails
        raise ConfigError(f"sentence-transformers cannot run {folder}: {type(error).__name__}: {error}") from error
    return np.asarray(vectors, np.float32)
