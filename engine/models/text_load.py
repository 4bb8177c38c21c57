"""Loads what gives texts' hidden states. Each kind's loader is imported when a model of it comes: a decoder's layers and their
families would be a twentieth of an encoder's start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.models import registry
from octavo.engine.models.text_encoder import TextEncoder
from octavo.platforms.ops import Weights


def load_text_encoder(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    with_head: bool = False,
    rows: tuple[int, ...] = (),
    **options: Any,
) -> TextEncoder:
    """An `Encoder`, or a `BareDecoder` where the checkpoint is a decoder's; `options` are those of both loaders. `rows`: of a
    generator's head, whose logits make a score."""
    first = checkpoint.files[0]
    if isinstance(first, GGUFFile):
        is_decoder = first.metadata.get("general.architecture") in registry.GGUF
    else:
        listed = (config or {}).get("architectures")
        name = str(listed[0]) if isinstance(listed, list) and len(listed) == 1 else ""
        is_decoder = registry.is_decoder(name) and bool(rows or not with_head or name in registry.SCORED)
    if is_decoder:
        from octavo.engine.models.bare_decoder import load_bare

        return load_bare(checkpoint, weights, config=config, with_head=with_head, rows=rows, **options)
    from octavo.engine.models.encoder_load import load_encoder

    return load_encoder(checkpoint, weights, config=config, with_head=with_head, **options)
