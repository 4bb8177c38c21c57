"""The same weights from a GGUF file and from safetensors give the same bits, for every family that GGUF has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import tiny, tiny_gguf

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import registry
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform
from octavo.quant.load import pack, unpack


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


def test_quantized_files_of_mixed_formats_expand_exactly(reference: Platform, tmp_path: Path) -> None:
    """q, k, v of different formats, q and k in rotating pairs, a fused q, k, v: all as their values say."""
    tensors = tiny_gguf.tensors_of("llama")
    formats = {"attn_q": "q8_0", "attn_k": "q8_0", "attn_v": "q5_0", "ffn_gate": "q4_1", "ffn_down": "q8_0"}
    quantized = {name: (formats.get(name.split(".")[-2], "f32"), values) for name, values in tensors.items()}
    exact = {
        name: ("f32", unpack(form, pack(form, values), values.shape)) for name, (form, values) in quantized.items()
    }
    fused = dict(exact)
    for layer in range(2):
        parts = [fused.pop(f"blk.{layer}.attn_{part}.weight")[1] for part in "qkv"]
        fused[f"blk.{layer}.attn_qkv.weight"] = ("f32", np.concatenate(parts))
    found = []
    for index, stored in enumerate((quantized, exact, fused)):
        path = tiny_gguf.write_tensors("llama", stored, tmp_path / f"{index}.gguf")
        with Checkpoint.open(path) as checkpoint:
            decoder = load_model(checkpoint, reference.weights(), expand=True)
        found.append(drive.run(reference, decoder, [tiny.prompt("llama", 20)])[0].tobytes())
    assert found[0] == found[1] == found[2]


def described(decoder: Decoder) -> dict[str, object]:
    """What both files must agree on: all but the places where GGUF stores something in another form."""
    fields = dataclasses.asdict(decoder.spec)
    for name in ("norm_add", "norm_eps", "layers", "embedding_scale", "residual_scale", "logits_scale"):
        fields.pop(name)  # 1 already added; float32 in GGUF, which the platform rounds to anyway
    return fields
