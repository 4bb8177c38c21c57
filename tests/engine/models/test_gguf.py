"""The same weights from a GGUF file and from safetensors give the same bits, for every family that GGUF has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.models import drive
from tests.golden import tiny, tiny_gguf

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import registry
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform


@pytest.mark.parametrize("case", tiny_gguf.CASES)
def test_gguf_and_safetensors_give_the_same_bits(
    case: str, reference: Platform, load: Callable[..., Decoder], tmp_path: Path
) -> None:
    plain = load(reference, case, config=tiny_gguf.config_of(case))
    with Checkpoint.open(tiny_gguf.write_gguf(case, tmp_path / "model.gguf")) as checkpoint:
        packed = load_model(checkpoint, reference.weights())
    assert described(packed) == described(plain)
    prompt = tiny.prompt(case, 33)
    (first,), (second,) = drive.run(reference, plain, [prompt]), drive.run(reference, packed, [prompt])
    assert first.tobytes() == second.tobytes()


def test_every_gguf_architecture_has_a_case() -> None:
    assert {architecture for architecture, _ in tiny_gguf.CASES.values()} == set(registry.GGUF)


def described(decoder: Decoder) -> dict[str, object]:
    """What both files must agree on: all but the places where GGUF stores something in another form."""
    fields = dataclasses.asdict(decoder.spec)
    for name in ("norm_add", "norm_eps", "layers", "embedding_scale", "residual_scale", "logits_scale"):
        fields.pop(name)  # 1 already added; float32 in GGUF, which the platform rounds to anyway
    return fields
