"""Fixtures of the model tests: the reference platform, tiny checkpoints on disk, decoders loaded from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.golden import tiny

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform
from octavo.platforms.registry import choose_platform

Load = Callable[..., Decoder]


@pytest.fixture(scope="session")
def reference() -> Platform:
    """The executable specification."""
    return choose_platform("reference", 1).platform


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Case -> folder with config.json and model.safetensors, written once per session."""
    root = tmp_path_factory.mktemp("tiny")

    def folder(case: str) -> Path:
        path = root / case
        return path if path.is_dir() else tiny.write_safetensors(case, path)

    return folder


@pytest.fixture(scope="session")
def load(folders: Callable[[str], Path]) -> Load:
    """load(platform, case, config=..., max_len=...): a decoder through the real loader."""

    def loaded(
        platform: Platform, case: str, *, config: Mapping[str, Any] | None = None, max_len: int | None = None
    ) -> Decoder:
        folder = folders(case)
        config = json.loads((folder / "config.json").read_text()) if config is None else config
        with Checkpoint.open(folder) as checkpoint:
            return load_model(checkpoint, platform.weights(), config=config, max_len=max_len)

    return loaded
