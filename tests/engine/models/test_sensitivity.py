"""Golden logits mean something only if they see every feature: switching any one off must move them clearly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import tiny

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_spec
from octavo.engine.models.source import describe
from octavo.engine.models.spec import DecoderSpec, LayerSpec
from octavo.platforms.platform import Platform
from octavo.platforms.types import Rope

CLEARLY = 1e-2
_OFF: dict[str, Any] = {
    "norm_add": 0.0,
    "has_pre_norm": False,
    "has_post_norm": False,
    "qk_norm": "none",
    "has_qkv_bias": False,
    "has_o_bias": False,
    "has_mlp_bias": False,
    "num_learned_positions": 0,
    "attn_softcap": 0.0,
    "final_softcap": 0.0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logits_scale": 1.0,
}


def without(spec: DecoderSpec) -> Iterator[tuple[str, DecoderSpec]]:
    """(feature, the description without it) for every feature that the description has."""
    for name, off in _OFF.items():
        if getattr(spec, name) != off:
            yield name, dataclasses.replace(spec, **{name: off})
    other = "silu" if spec.activation != "silu" else "gelu_tanh"
    yield "activation", dataclasses.replace(spec, activation=other)
    yield "scale", changed(spec, lambda layer: {"scale": layer.scale * 1.25})
    if any(layer.window for layer in spec.layers):
        yield "window one wider", changed(spec, lambda layer: {"window": layer.window + 1 if layer.window else 0})
        yield "window one narrower", changed(spec, lambda layer: {"window": max(layer.window - 1, 0)})
    if any(layer.rope is None for layer in spec.layers) and any(layer.rope for layer in spec.layers):
        rope = next(layer.rope for layer in spec.layers if layer.rope)
        yield "no rotation", changed(spec, lambda layer: {"rope": rope})
    if not any(layer.rope for layer in spec.layers):
        return
    for name, change in _ROPE.items():
        yield name, changed(spec, lambda layer, change=change: {"rope": layer.rope and change(layer.rope)})
    if len({layer.rope for layer in spec.layers if layer.rope}) > 1:
        last = spec.layers[-1].rope
        yield "rope per layer type", changed(spec, lambda layer: {"rope": layer.rope and last})


_ROPE: dict[str, Callable[[Rope], Rope]] = {
    "rotation pairs": lambda rope: dataclasses.replace(rope, interleaved=not rope.interleaved),
    "frequencies": lambda rope: dataclasses.replace(rope, inv_freq=tuple(f * 1.1 for f in rope.inv_freq)),
    "rotary width": lambda rope: dataclasses.replace(rope, inv_freq=rope.inv_freq[:-1], rotary_dim=rope.rotary_dim - 2),
    "rotary factor": lambda rope: dataclasses.replace(rope, attention_factor=rope.attention_factor * 1.1),
}


def changed(spec: DecoderSpec, change: Callable[[LayerSpec], dict[str, Any]]) -> DecoderSpec:
    return dataclasses.replace(spec, layers=tuple(dataclasses.replace(layer, **change(layer)) for layer in spec.layers))


@pytest.mark.parametrize("case", tiny.CASES)
def test_every_feature_moves_the_logits(case: str, reference: Platform, folders: Callable[[str], Path]) -> None:
    folder = folders(case)
    prompt = tiny.prompt(case, 22)
    with Checkpoint.open(folder) as checkpoint:
        _, spec, names, _ = describe(checkpoint, json.loads((folder / "config.json").read_text()))

        def logits(spec: DecoderSpec) -> np.ndarray[Any, Any]:
            decoder = load_spec(checkpoint, reference.weights(), spec, names)
            return drive.run(reference, decoder, [prompt])[0]

        base = logits(spec)
        for feature, other in without(spec):
            moved = float(np.abs(logits(other) - base).max())
            assert moved > CLEARLY, f"{case}: {feature} moves logits by {moved:.1e} only"
