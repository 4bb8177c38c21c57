"""Decoders as embedders: the layers of the generator, seen through pages or not; what has no vectors is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.engine.models import drive, encoder_drive
from tests.golden import tiny, tiny_encoders, tiny_sentences

from octavo.engine.embedder import Embedder
from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import registry
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform


def written(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("case", ["qwen2_sliding", "qwen3", "mistral", "gemma3", "gpt2", "granite", "phi3_sliding"])
def test_packed_texts_have_the_states_that_pages_give(case: str, reference: Platform, tmp_path: Path) -> None:
    """The generator's logits are its head's over the embedder's states, within what the order of sums allows."""
    folder = tiny.write_safetensors(case, tmp_path)
    text = tiny.prompt(case, 40)
    with Checkpoint.open(folder) as checkpoint:
        decoder = load_model(checkpoint, reference.weights(), config=tiny.CASES[case])
    (wanted,) = drive.run(reference, decoder, [text])
    bare = encoder_drive.load(reference, folder)
    (states,) = encoder_drive.run(reference, bare, [text])
    spec = decoder.spec
    tensors = tiny.state_dict(case)
    table = next(
        tensors[n] for n in ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight") if n in tensors
    )
    logits = states.astype(np.float64) @ table.T * spec.logits_scale
    assert not spec.final_softcap and float(np.abs(logits - wanted).max()) < 1e-4
    assert bare.spec == spec and bare.head is None and bare.formats() == ["f32"]


def test_generators_open_what_was_saved_without_the_prefix(reference: Platform, tmp_path: Path) -> None:
    config, tensors = tiny.CASES["qwen3"], tiny.state_dict("qwen3")
    short = {name.removeprefix("model."): values for name, values in tensors.items()}
    text = tiny.prompt("qwen3", 9)
    found = []
    for folder in (written(tmp_path / "a", config, tensors), written(tmp_path / "b", config, short)):
        with Checkpoint.open(folder) as checkpoint:
            decoder = load_model(checkpoint, reference.weights(), config=config)
        found.append(drive.run(reference, decoder, [text])[0].tobytes())
    assert found[0] == found[1]


def test_half_a_window_of_gemma_lies_on_either_side(reference: Platform, tmp_path: Path) -> None:
    folder = tiny_encoders.write_safetensors("gemma3_bare", tmp_path)
    attentions = [block.attention for block in encoder_drive.load(reference, folder).weights.blocks]
    assert [attention.window for attention in attentions] == [8, 8, 8, 8, 8, 0]
    assert not any(attention.is_causal for attention in attentions)
    config = {**tiny_encoders.BARE["gemma3_bare"], "use_bidirectional_attention": False}
    causal = encoder_drive.load(reference, written(tmp_path / "c", config, tiny_encoders.state_dict("gemma3_bare")))
    assert [block.attention.window for block in causal.weights.blocks] == [15, 15, 15, 15, 15, 0]
    assert all(block.attention.is_causal for block in causal.weights.blocks)


def test_layers_that_cap_scores_are_refused(reference: Platform, tmp_path: Path) -> None:
    folder = tiny.write_safetensors("gemma2", tmp_path)
    with pytest.raises(ModelError, match="gemma2: layers with a cap of 5 on scores are not served as an embedder"):
        encoder_drive.load(reference, folder)
    tiny_sentences.write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({**tiny.CASES["gemma2"], "architectures": ["Gemma2Model"]}))
    with pytest.raises(ModelError, match=r"Gemma2Model caps the scores of its attention .*bge-multilingual-gemma2"):
        Embedder(folder, platform="reference")


def test_a_tensor_left_over_is_named_and_the_head_is_none(reference: Platform, tmp_path: Path) -> None:
    config, tensors = tiny.CASES["mistral"], tiny.state_dict("mistral")
    assert "lm_head.weight" in tensors
    encoder_drive.load(reference, written(tmp_path, config, tensors))
    extra = {**tensors, "model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)}
    with pytest.raises(ModelError, match=r"does not use: model\.layers\.0\.self_attn\.q_norm\.weight"):
        encoder_drive.load(reference, written(tmp_path, config, extra))


def test_a_decoder_without_modules_is_no_embedder(tmp_path: Path) -> None:
    folder = tiny_sentences.write_case("qwen3_embedding", tmp_path)
    (folder / "modules.json").unlink()
    with pytest.raises(ModelError, match=r"Qwen3ForCausalLM is a decoder, and .* has no modules\.json"):
        Embedder(folder, platform="reference", num_threads=1)


def test_names_without_a_head_are_embedders_names(tmp_path: Path) -> None:
    cases = {config["architectures"][0] for config in tiny_encoders.BARE.values()}
    assert cases == {*registry.BARE, "Qwen3ForCausalLM"}
    for name in registry.BARE:
        assert registry.is_decoder(name) and "tokens" in registry.bare_family(name, "folder").hf.roles
        with pytest.raises(ModelError, match=f"{name} is a decoder without a head: it gives vectors"):
            registry.hf_family(name, "folder")
    assert registry.is_decoder("Qwen3ForCausalLM") and not registry.is_decoder("BertModel")
