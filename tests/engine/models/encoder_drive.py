"""Loads tiny encoders and runs texts through a platform: packed steps, hidden states of every token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden import tiny_encoders as tiny

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.text_load import load_text_encoder
from octavo.platforms.platform import Capacity, Platform
from octavo.platforms.types import F32, I32


def load(platform: Platform, folder: Path, **options: Any) -> Any:
    """The encoder of a folder through the real loader."""
    config = json.loads((folder / "config.json").read_text())
    with Checkpoint.open(folder) as checkpoint:
        return load_text_encoder(checkpoint, platform.weights(), config=config, **options)


def run(platform: Platform, encoder: Any, texts: Sequence[I32], types: Sequence[I32] | None = None) -> list[F32]:
    """Hidden states [tokens, hidden] of every text, all packed into one step."""
    total = sum(map(len, texts))
    spec = encoder.spec
    capacity = Capacity(total, len(texts), total, spec.max_positions + spec.position_offset, 1)
    executable = platform.build(encoder, encoder.kv_spec(), capacity)
    try:
        batch = encoder.batch(texts, types)
        executable.run(batch)
        rows = np.array(executable.head(np.arange(total, dtype=np.int32)))
        return np.split(rows, batch.query_start[1:-1])
    finally:
        executable.close()


def texts_of(case: str, lengths: Sequence[int]) -> tuple[list[I32], list[I32]]:
    """(token ids, segment ids) of a case's texts."""
    return [tiny.prompt(case, n) for n in lengths], [tiny.token_types(case, n) for n in lengths]
